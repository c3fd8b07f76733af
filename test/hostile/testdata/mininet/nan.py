from mininet.net import Mininet
from mininet.link import TCLink
net = Mininet(link=TCLink)
h1, s1 = net.addHost("h1"), net.addSwitch("s1", failMode="standalone")
net.addLink(h1, s1, bw=float("nan"), max_queue_size=float("inf"))
net.start()
