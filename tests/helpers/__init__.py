"""Fixtures, sample data and drivers that test modules share."""
