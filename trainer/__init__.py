"""The training side: metrics, losses and models over graded relevance."""
