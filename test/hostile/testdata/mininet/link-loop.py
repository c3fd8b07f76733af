from mininet.net import Mininet
net = Mininet()
h1 = net.addHost("h1")
net.addLink(h1, h1)
net.start()
