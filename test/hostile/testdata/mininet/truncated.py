from mininet.topo import Topo
class T(Topo):
    def build(self):
        self.addHost("h1"