"""Where noise comes from: a cipher keyed by the operating system. Sites and the coordinator draw from it."""
