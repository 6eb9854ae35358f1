"""The papers' methods as published, and their figures and tables. No default imports this."""
