"""Fine-tuning: data, scores and predictions. Each module needs no other part of the package while it is imported."""
