from mininet.topo import Topo
class A(Topo):
    pass
class B(Topo):
    pass
topos = {"a": A, "b": B}
