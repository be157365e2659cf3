# After few_labels.sh, for all 5,920 labels: these are more updates than those of the smaller parts.
EPOCHS=5
