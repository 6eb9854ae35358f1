"""Sources of noise: a cipher that is keyed by the operating system. Sites and the coordinator draw from it."""
