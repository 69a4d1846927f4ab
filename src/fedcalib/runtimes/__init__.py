"""Runtimes: where clients are, one file each."""
