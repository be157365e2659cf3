# GLUE as fine-tuned by TUPE (Ke et al. 2021): the values of settings.sh, with a separate folder of runs.
NAME=glue_tupe
