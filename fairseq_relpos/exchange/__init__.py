"""RoBERTas between fairseq and Hugging Face transformers."""
