# TUPE's preparation of the text, as far as fine-tuning can repeat it: for prepare.sh alone. The folder is that of settings.sh;
# set DATA to keep both.
LOWERCASE=yes
MOSES_TOKENS=yes
MERGES=32640
