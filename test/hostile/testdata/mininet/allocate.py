x = []
while True:
    x.append(bytes(1 << 24))  # asked for, not touched: touching a GiB takes some machines as long as a script may run
