"""Settings: what may be set, what may be searched, and where both are read from."""
