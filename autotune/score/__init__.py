"""What a replay means: counts, bounds, verdicts, and how far to climb."""
