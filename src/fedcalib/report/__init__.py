"""Plots that explain themselves and a self-contained HTML report."""
