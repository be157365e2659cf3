"""Training that survives: ranks that find each other and agree, files that are whole, signals,
numbers that stop being numbers. Each module puts a few functions in place of fairseq's;
compat.py lists them."""
