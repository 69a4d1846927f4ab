"""Privacy models, one file each, named by who is trusted."""
