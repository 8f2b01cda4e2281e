"""What stands behind the papers: recipes, their tables, benchmarks and studies.

It runs from a clone (`python -m research.reproduce sam-1`) and is not in the wheel.
"""
