"""What is written down of a study: results, privacy reports, maps."""
