"""The papers' methods as published, for comparison on public or synthetic data only; nothing here is a default."""
