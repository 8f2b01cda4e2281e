"""A table of a paper by one command: what it needs is trained, and stands beside what was
published."""
