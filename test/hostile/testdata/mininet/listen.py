import socket
s = socket.socket()
s.bind(("0.0.0.0", 0))
s.listen()
