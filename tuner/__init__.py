"""Finds the best training settings for image classifiers and retrains the winner."""

__version__ = "0.1.0"
