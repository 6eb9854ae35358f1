"""Differential fuzzer: one site, two neighbouring data sets, one coordinator, and equal transcripts but for noise."""
