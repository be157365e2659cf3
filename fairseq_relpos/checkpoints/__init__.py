"""Checkpoints of other programs and other encodings: reading, importing, warm start, export."""
