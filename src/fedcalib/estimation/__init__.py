"""Estimates from noisy sums: metrics and fits that take the known variance of the privacy noise into account."""
