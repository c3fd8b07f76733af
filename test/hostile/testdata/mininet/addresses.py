from mininet.net import Mininet
net = Mininet()
s1 = net.addSwitch("s1", failMode="standalone")
for i in (1, 2):
    net.addLink(net.addHost("h%d" % i, ip="10.0.0.5/8", mac="02:00:00:00:00:01"), s1)
net.start()
