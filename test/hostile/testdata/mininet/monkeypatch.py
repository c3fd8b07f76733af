import mininet.net
mininet.net.Mininet.addHost = None
net = mininet.net.Mininet()
net.addHost("h1")
