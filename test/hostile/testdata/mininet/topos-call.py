topos = {"t": lambda: 5}
