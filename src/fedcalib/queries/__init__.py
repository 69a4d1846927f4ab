"""Queries that several methods share, named by what they count."""
