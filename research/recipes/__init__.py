"""The tables of the papers: one file of parameters and published numbers per row group of each."""
