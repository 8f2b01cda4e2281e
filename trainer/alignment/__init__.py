"""What the words of a caption point at."""
