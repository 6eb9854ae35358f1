"""Independent components of sources of every kind: run `python benchmarks/heldout_ica.py kinds`."""
