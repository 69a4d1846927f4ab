"""Methods, one file each, named as in the literature."""
