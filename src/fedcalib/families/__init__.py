"""Families of scalings: maps on logits that a parameter vector picks out, with their losses and gradients."""
