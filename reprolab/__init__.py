"""reprolab."""
