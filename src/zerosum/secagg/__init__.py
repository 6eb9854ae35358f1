"""Secure aggregation after Bonawitz et al. 2017, as two state machines. No input or output, and no budgets.

A site adds to its vector, in Z_2^64, a self-mask and one mask for every neighbour, which the neighbour subtracts.
Summed over all sites the neighbours' masks cancel. The self-masks are opened when the list of vectors in the sum is
fixed. If a site was lost, its masks with the others are opened instead. Of each site and attempt at most one of the two
secrets is ever opened, so that a vector that arrives late stays hidden.
"""
