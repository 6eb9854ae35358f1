"""Regression: shared parts, least squares, generalised linear models, the functional mechanism and inference."""
