r"""A torus of switches that would loop without the spanning tree protocol.

run: mn -v output --topo torus,3,3 --switch ovsbr,stp=1 --custom SCRIPT --test settled
expect: Results: 0% dropped \(72/72 received\)
"""
import time


def settled(net):
    for _ in range(40):
        if net.ping(net.hosts[:2], timeout='1') == 0:
            break
        time.sleep(1)
    return net.pingAll()


tests = {'settled': settled}
