"""The stages around trained models, a file each: parameters, what it reads, what is said of it."""
