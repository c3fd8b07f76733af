raise RuntimeError("boom\nsecond line \x1b[31m red")
