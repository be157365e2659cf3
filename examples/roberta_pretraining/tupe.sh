# The words of TUPE's text, for prepare.sh.
LOWERCASE=yes
MOSES_TOKENS=yes
MERGES=32640
