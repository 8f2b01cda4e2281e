"""Scores of candidate captions, each against its own references: what captioners are evaluated
with."""
