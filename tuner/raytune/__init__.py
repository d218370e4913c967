"""Runs jobs on Ray Tune. The only package that imports ray."""
