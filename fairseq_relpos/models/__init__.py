"""One short file per fairseq model family; fairseq imports them through --user-dir."""
