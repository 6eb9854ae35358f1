"""Principal components: the program, the search for a centre, noisy spectra, subspace iteration and the constants."""
