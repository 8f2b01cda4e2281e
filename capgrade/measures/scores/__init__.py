"""Scores of candidate captions, each against its own references, to evaluate captioners."""
