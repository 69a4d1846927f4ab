"""Artifacts: what a run leaves behind. Small, frozen, saved as JSON, and in need of numpy only."""
