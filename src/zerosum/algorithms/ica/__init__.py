"""Independent components: the program, the start, the filter over rounds, the joint likelihood and the constants."""
