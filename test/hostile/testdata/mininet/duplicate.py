from mininet.net import Mininet
net = Mininet()
net.addHost("h1")
net.addHost("h1")
net.start()
