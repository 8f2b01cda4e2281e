"""Benchmarks of capgrade beside a peer in one run, and their ratio. `capgrade bench` runs them."""
