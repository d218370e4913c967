"""What to train next, and what to stop: decisions that follow from the record alone."""
