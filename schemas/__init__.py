"""What is written and read: parameters, the Arrow schema of every table between stages, files and
errors."""
