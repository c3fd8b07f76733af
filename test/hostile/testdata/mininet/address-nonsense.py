from mininet.net import Mininet
net = Mininet()
net.addHost("h1", ip="not an address", mac=[1])
net.start()
