"""Why runs part, and who holds a run up."""
