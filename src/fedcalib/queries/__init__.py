"""Queries, one file per topic, each with the argument for its bounds."""
