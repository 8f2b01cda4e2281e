"""A split through a trained model, kept for searching."""
