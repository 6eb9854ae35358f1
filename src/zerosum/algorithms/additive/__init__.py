"""Additive models: shape functions of columns and of pairs of columns, from secure sums by bin."""
