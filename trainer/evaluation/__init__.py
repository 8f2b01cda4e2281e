"""Every metric of a similarity matrix, and tables of evaluations."""
