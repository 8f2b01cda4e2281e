"""The data side: captions -> relevance -> sampled shards -> a Hugging Face dataset."""
