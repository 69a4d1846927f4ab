"""Workflows: what people do with the package, from data to a result that shows itself."""
