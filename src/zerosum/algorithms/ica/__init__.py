"""Independent components: the program, the start, the filter over rounds and the joint likelihood."""
