import socket
s = socket.socket(socket.AF_UNIX)
s.bind("was-here.sock")
