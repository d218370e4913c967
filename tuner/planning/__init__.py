"""What the machine has, and how the trials share it."""
