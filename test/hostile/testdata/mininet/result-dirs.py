import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"nodes": [{"name": "h1", "kind": "host", "dirs": [[]], "routes": [["x", "y"]], "ips": ["1"], "mac": "z", "cores": [-1]}]}')
    except OSError:
        pass
os._exit(0)
