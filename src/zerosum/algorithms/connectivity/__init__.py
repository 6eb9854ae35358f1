"""Connectivity between networks or regions: means by group, differences, and regression on covariates."""
