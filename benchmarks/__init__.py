"""Benchmarks: us and a peer in one process run, and the ratio. `capgrade bench` runs them."""
