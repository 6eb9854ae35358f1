"""Published methods of the papers, for comparison on public or synthetic data only. None of them is a default."""
