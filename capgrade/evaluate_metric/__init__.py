"""Caption scores for Hugging Face's `evaluate`, which loads a metric from a folder:
`evaluate.load(PATH)`."""

from pathlib import Path

PATH = str(Path(__file__).parent)
