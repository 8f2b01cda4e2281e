"""A training run."""
