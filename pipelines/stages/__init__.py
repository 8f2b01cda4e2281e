"""The stages of the data side, a file each: parameters, what it reads, and what is said of it."""
