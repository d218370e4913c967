"""The tests; a package, so that no other `tests` that is installed somewhere is taken for it."""
