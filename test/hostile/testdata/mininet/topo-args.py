from mininet.topo import Topo
class T(Topo):
    def build(self, n):
        self.addHost("h1")
topos = {"t": T}
