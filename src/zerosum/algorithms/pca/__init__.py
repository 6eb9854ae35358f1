"""Principal components: parameters and planner (`planning`), requests (`releases`), paths and estimate (`program`),
the search for a centre and a clip (`centering`), noisy spectra (`spectrum`), subspace iteration and the constants."""
