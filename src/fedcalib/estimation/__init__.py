"""Estimates from noisy sums: the metrics and fits that know how much noise their tables carry."""
