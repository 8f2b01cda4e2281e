"""How a stage is run: jobs of blocks, the worker that makes them, Beam's runners, folders at URLs,
processes."""
