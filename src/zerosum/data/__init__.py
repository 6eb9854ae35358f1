"""Loaders of records, and the synthetic data of demos and papers."""
