"""How a stage is run: jobs of blocks, workers, Beam's runners, and folders at URLs."""
