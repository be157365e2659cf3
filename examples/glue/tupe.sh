# GLUE as TUPE (Ke et al. 2021) fine-tunes it: the values of settings.sh, in runs of its own.
NAME=glue_tupe
