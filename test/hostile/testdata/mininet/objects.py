from mininet.net import Mininet
net = Mininet()
net.addHost(object())
net.addSwitch(5, dpid=object())
net.start()
