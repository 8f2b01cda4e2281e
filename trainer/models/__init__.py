"""Retrieval models: one a file."""
