"""Models of images and captions: their data, training, evaluation and search."""
