# RoBERTa large; after another file, its values: SETTINGS="m4m.sh large.sh".
NAME=${NAME}_large
SIZE=_large
