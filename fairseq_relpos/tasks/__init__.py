"""Tasks that fairseq lacks."""
