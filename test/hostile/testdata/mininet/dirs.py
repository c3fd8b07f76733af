from mininet.net import Mininet
from mininet.node import Host
from functools import partial
net = Mininet(host=partial(Host, privateDirs=["/proc", "/", "../x"]))
net.addHost("h1")
net.start()
