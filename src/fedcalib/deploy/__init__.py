"""Deployed federations: Flower, job files, the commands behind them, and certificates."""
