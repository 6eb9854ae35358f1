"""Classifiers that are trained by noisy gradients, and their evaluation."""
