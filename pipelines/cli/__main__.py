"""`python -m capgrade.pipelines.cli`, as torchrun starts it."""

from capgrade.pipelines.cli import main

if __name__ == "__main__":
    main()
