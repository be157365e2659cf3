# M4M, Sec. 3.2: 500,000 further updates of a released RoBERTa with another encoding, with its
# vocabulary and START_FROM=roberta.base/model.pt. The paper's text was 16 GB of Wikipedia and books and
# 38 GB of OpenWebText, which prepare.sh needs as well.
NAME=roberta_pretraining_m4m_continued
DATA_NAME=roberta_pretraining_gpt2
VOCABULARY=gpt2
VOCAB_SIZE=50265
NEEDS_START=yes
BATCH=480
UPDATES=500000
