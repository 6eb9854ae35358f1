"""Who asks: drives a program, one planned release after another, over any engine."""
