"""Checkpoints of this package as models of Hugging Face transformers, and the other way round."""

from .. import register

register()
