"""Plots with explanations, and a report as one HTML file."""
