"""Training data: pairs, batches, and the relevance of a batch."""
