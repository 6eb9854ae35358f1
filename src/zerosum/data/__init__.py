"""Data loaders (tables, documents, brain images), regression designs, and synthetic data for demos and papers."""
