import os
os._exit = lambda code: None
os.write = lambda fd, data: len(data)
from mininet.net import Mininet
net = Mininet()
net.addHost("h1")
net.start()
