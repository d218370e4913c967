"""The durable truth of a search."""
