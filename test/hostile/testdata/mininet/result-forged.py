import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"nodes": [{"name": "../../etc/passwd", "kind": "host", "start": "reboot"}, {"name": "h2", "kind": "toaster", "dirs": [[]]}]}')
    except OSError:
        pass
os._exit(0)
