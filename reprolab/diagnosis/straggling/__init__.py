"""Who was late, what it cost, and what to do about it."""
