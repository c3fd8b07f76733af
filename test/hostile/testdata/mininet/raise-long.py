raise ValueError("x" * 1000000)
