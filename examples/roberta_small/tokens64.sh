# The comparison with blocks of 64 tokens, where TUPE loses no head: README.md, "TUPE loses a head".
RUNS=runs/roberta_small_tokens64
TOKENS_PER_SAMPLE=64
UPDATES=6000
VALIDATE_EVERY=2000        # updates; an order gap doubles the time of a validation
COMPARED="learned t5 at5 tupe_a tupe_r tupe_a_tie_cls bert_r bert_ad shaw m4 m4m deberta"
LEARNING_RATES="2e-3 4e-3"
