"""`python -m pipelines.cli`, as torchrun starts it."""

from pipelines.cli import main

main()
