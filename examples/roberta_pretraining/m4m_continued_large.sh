# M4M, Sec. 3.4: the same for RoBERTa large.
. "$HERE/m4m_continued.sh"
. "$HERE/large.sh"
BATCH=192
