"""What is learnt from: pairs, batches, and the relevance of a batch."""
