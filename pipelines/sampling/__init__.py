"""Which captions an image keeps."""
