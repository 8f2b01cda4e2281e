"""Judgements of pairs, and what they say of a measure: coefficients, intervals, the human ceiling,
calibration."""
