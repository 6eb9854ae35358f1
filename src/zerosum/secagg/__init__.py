"""How a sum stays hidden: secure aggregation after Bonawitz et al. 2017. No input or output, nothing about budgets.

A site adds to its vector, in Z_2^64, a self-mask of its own and one mask for every neighbour, which the neighbour
subtracts. Summed over all sites the neighbours' masks cancel; the self-masks are opened once it is settled whose
vectors are in the sum, and where a site was lost, its masks with the others are opened instead. Of each site and
attempt at most one of the two secrets is ever opened, so a vector that comes late stays hidden.
"""
