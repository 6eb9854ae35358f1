"""Topics of documents: the program, topics from released moments of words, and the constants."""
