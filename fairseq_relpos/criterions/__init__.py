"""Criterions that fairseq lacks. fairseq imports tasks and models of a --user-dir, but not these."""
