"""Output of a study: results, privacy reports, brain maps, signed report pages."""
