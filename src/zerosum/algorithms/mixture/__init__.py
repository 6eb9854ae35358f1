"""Mixtures of normal components: the program, one EM step from released sums, and the constants."""
