import os
for fd in range(3, 64):
    try:
        os.write(fd, b"garbage")
    except OSError:
        pass
os._exit(0)
