"""Cox regression: the program, the baseline from a table of exits, and the estimation of coefficients."""
