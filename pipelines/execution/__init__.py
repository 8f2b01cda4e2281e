"""How a stage is run: jobs of blocks, the worker that makes them, runners, parts, folders at URLs, processes."""
