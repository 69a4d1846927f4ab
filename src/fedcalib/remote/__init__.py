"""A client's own side of a federation: what it answers, what it refuses, and what it writes down about both."""
