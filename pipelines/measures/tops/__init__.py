"""The captions of highest relevance to each image, without a score for every pair: exactly those of all pairs."""
