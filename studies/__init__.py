"""Studies behind pages of docs, and the training of the small detector: run from a checkout, not in the wheel."""
