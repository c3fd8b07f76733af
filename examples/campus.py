"""The campus: ten switches, s1 in the middle, four hosts at each.

    trivet up examples/campus.py
    sudo python3 examples/campus.py
    sudo mn --custom examples/campus.py --topo campus --test pingall
"""
from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo


class Campus(Topo):
    "A star of switches with the same number of hosts at each."

    def build(self, switches=10, hosts=4):
        number = 0
        for i in range(1, switches + 1):
            switch = self.addSwitch('s%d' % i)
            for _ in range(hosts):
                number += 1
                self.addLink(switch, self.addHost('h%d' % number))
        for i in range(2, switches + 1):
            self.addLink('s1', 's%d' % i)


topos = {'campus': Campus}

if __name__ == '__main__':
    setLogLevel('info')
    net = Mininet(topo=Campus())
    net.start()
    CLI(net)
    net.stop()
