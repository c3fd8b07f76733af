from mininet.net import Mininet
net = Mininet()
for i in range(10**9):
    net.addHost("h%d" % i)
net.start()
