"""Benchmarks of capgrade beside a peer in one run, and their ratio. `python -m research.benchmarks`
runs them."""
