"""Published methods of the papers, and their figures and tables, for comparison. No default imports this package."""
