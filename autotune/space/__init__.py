"""What can run here: known settings, version ranges, and the narrowing of a search space."""
