"""Synthetic tables from private tables of few columns: releases, bins, the model, its records and its error."""
