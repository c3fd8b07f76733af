from mininet.net import Mininet
net = Mininet()
net.addHost("h1")
net.addLink("h1", "h9")
net.start()
