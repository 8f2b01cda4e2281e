"""Losses: one family a file, each a pure function of a scored batch."""
