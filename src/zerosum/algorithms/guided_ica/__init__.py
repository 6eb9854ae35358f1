"""Guided ICA: what dual regression of people's data changes about public template maps."""
