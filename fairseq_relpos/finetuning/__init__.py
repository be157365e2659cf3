"""Fine-tuning: data sets as tables and as fairseq's data, metrics, the start of a training, predictions, reports."""

from .. import register

register()
