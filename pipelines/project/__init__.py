"""A project of DVC over one dataset: its files, and what its stages are made of."""
