topos = 5
