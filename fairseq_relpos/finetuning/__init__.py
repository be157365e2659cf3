"""Fine-tuning on downstream tasks: data, scores and predictions."""
