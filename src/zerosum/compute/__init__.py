"""How a statistic is executed: units, blocks of rows, threads, devices and numerical back ends."""
