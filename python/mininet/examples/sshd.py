"""A network whose hosts the machine reaches, with a server in each: Mininet's example sshd."""
import sys

from mininet.cli import CLI
from mininet.log import info, setLogLevel
from mininet.net import Mininet
from mininet.node import Node
from mininet.topolib import TreeTopo
from mininet.util import waitListening


def TreeNet(depth=1, fanout=2, **kwargs):
    """A network that is a tree."""
    return Mininet(TreeTopo(depth, fanout), waitConnected=True, **kwargs)


def connectToRootNS(network, switch, ip, routes):
    """Link the machine to a switch, with an address and routes there, and start the network."""
    root = Node("root", inNamespace=False)
    device = network.addLink(root, switch).intf1
    root.setIP(ip, intf=device)
    network.start()
    for route in routes:
        root.cmd("ip route replace", route, "dev", device)


def sshd(network, cmd="/usr/sbin/sshd", opts="-D", ip="10.123.123.1/32", routes=None, switch=None):
    """Start a network that the machine is linked to and a server in each host, show the prompt, stop it all."""
    connectToRootNS(network, switch or network["s1"], ip, routes or ["10.0.0.0/24"])
    for host in network.hosts:
        host.cmd(cmd, opts, "&")
    info("*** Waiting for ssh daemons to start\n")
    for host in network.hosts:
        waitListening(server=host, port=22, timeout=5)
    info("\n*** Hosts are running sshd at the following addresses:\n")
    for host in network.hosts:
        info(host.name, host.IP(), "\n")
    info("\n*** Type 'exit' or control-D to shut down network\n")
    CLI(network)
    for host in network.hosts:
        host.cmd("kill %" + cmd)
    network.stop()


if __name__ == "__main__":
    setLogLevel("info")
    sshd(TreeNet(depth=1, fanout=4), opts=" ".join(sys.argv[1:]) or "-D -o UseDNS=no -u0")
