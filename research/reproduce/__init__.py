"""A table of a paper by one command, which trains the models and puts our numbers beside the
published ones."""
