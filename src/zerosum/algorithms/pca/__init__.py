"""Principal components: the program, the search for a centre, noisy spectra and the rounds of subspace iteration."""
