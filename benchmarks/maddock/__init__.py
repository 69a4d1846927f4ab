"""The published multiclass methods and ours, on real logits, with and without privacy for whole clients."""
