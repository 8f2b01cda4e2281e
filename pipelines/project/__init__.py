"""A DVC project over one dataset: its files, and the inputs of its stages."""
