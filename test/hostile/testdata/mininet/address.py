from mininet.net import Mininet
net = Mininet()
net.addHost("h1", ip="not an address")
net.addHost("h2", ip="10.0.0.300/8")
net.start()
