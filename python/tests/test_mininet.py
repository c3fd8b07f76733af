"""The drop-in against real labs: scripts as people write them, the numbers and texts that they lean on. Needs root.

The texts were recorded from Mininet 2.3.0.
"""
import contextlib
import glob
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from decimal import Decimal
from fractions import Fraction
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
os.environ.setdefault("TRIVET_LAB", "py%d" % os.getpid())

from mininet import log, util  # noqa: E402
from mininet.cli import CLI  # noqa: E402
from mininet.link import TCLink  # noqa: E402
from mininet.log import info, setLogLevel  # noqa: E402
from mininet.net import Mininet  # noqa: E402
from mininet.node import (Controller, CPULimitedHost, Host, Node, OVSBridge, OVSController, OVSKernelSwitch, OVSSwitch,  # noqa: E402
                          RemoteController, Switch)
from mininet.nodelib import LinuxBridge, NAT  # noqa: E402
from mininet.topo import LinearTopo, MinimalTopo, SingleSwitchReversedTopo, SingleSwitchTopo, Topo  # noqa: E402
from mininet.topolib import TorusTopo, TreeTopo  # noqa: E402
from mininet.util import custom, dumpNodeConnections, pmonitor, quietRun, which  # noqa: E402


@contextlib.contextmanager
def said(level="info"):
    """What is logged meanwhile; the level is as it was afterwards."""
    text = io.StringIO()
    setLogLevel(level)
    try:
        with contextlib.redirect_stderr(text):
            yield text
    finally:
        setLogLevel("warning")


def prompt(net, *commands):
    """What the prompt says to commands."""
    with said("output") as text, tempfile.NamedTemporaryFile("w", suffix=".cli") as f:
        f.write("\n".join(commands) + "\n")
        f.flush()
        CLI(net, script=f.name)
    return text.getvalue()



class TestTrace(unittest.TestCase):
    def test_own_lines(self):
        """A script that fails shows its own lines and what is wrong by them, not ours; TRIVET_DEBUG shows all."""
        text = ("from mininet.net import Mininet\nnet = Mininet(topo=None, controller=None)\nh1 = net.addHost('h1', ip='10.0.0.300/24')\n"
                "net.addLink(h1, net.addHost('h2'))\ndef begin():\n    net.start()\nbegin()\n")
        with tempfile.TemporaryDirectory() as directory:
            script = os.path.join(directory, "wrong.py")
            with open(script, "w", encoding="utf-8") as f:
                f.write(text)
            path = os.pathsep.join(p for p in sys.path if p)
            for debug, frames in (("", 2), ("1", 3)):
                env = dict(os.environ, PYTHONPATH=path, TRIVET_DEBUG=debug)
                said = subprocess.run([sys.executable, script], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True).stderr
                self.assertIn("%s:4: h1-eth0 -- h2-eth0: address 10.0.0.300/24: not an address" % script, said)
                self.assertEqual(min(said.count("  File "), 3), frames, said)


class Case(unittest.TestCase):
    def setUp(self):
        setLogLevel("warning")

    def start(self, *args, **kwargs):
        net = Mininet(*args, **kwargs)
        self.addCleanup(lambda: net.fabric.ended or net.stop())
        net.start()
        return net


class TestNumbers(Case):
    """Names, ports, addresses: they need no lab."""

    def of(self, topo, **kwargs):
        net = Mininet(topo, controller=None, **kwargs)
        return net, ["%s-%s" % (link.intf1, link.intf2) for link in net.links]

    def test_linear(self):
        """A switch's host comes before the switch before it."""
        net, links = self.of(LinearTopo(3))
        self.assertEqual(links, ["h1-eth0-s1-eth1", "h2-eth0-s2-eth1", "h3-eth0-s3-eth1", "s2-eth2-s1-eth2", "s3-eth2-s2-eth3"])
        self.assertEqual([h.IP() for h in net.hosts], ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
        self.assertEqual(self.of(LinearTopo(2, 2))[0].hosts[0].name, "h1s1")

    def test_shapes(self):
        """Tree, torus, reversed: the order of ports, and the ids."""
        _net, links = self.of(TreeTopo(2, 2))
        self.assertEqual(links, ["s1-eth1-s2-eth3", "s1-eth2-s3-eth3", "s2-eth1-h1-eth0", "s2-eth2-h2-eth0", "s3-eth1-h3-eth0",
                                 "s3-eth2-h4-eth0"])
        self.assertEqual(self.of(TorusTopo(3, 3))[0]["s2x3"].dpid, "0000000000000203")
        self.assertEqual(self.of(SingleSwitchReversedTopo(3))[1], ["h1-eth0-s1-eth3", "h2-eth0-s1-eth2", "h3-eth0-s1-eth1"])

    def test_addresses(self):
        """The counter goes on for every host, begins at ipBase's host part, and gives MACs."""
        net = Mininet(ipBase="192.168.7.5/24", autoSetMacs=True, controller=None)
        s = net.addSwitch("s1")
        for i, params in enumerate([{}, {"ip": "192.168.7.99/24"}, {}]):
            net.addLink(net.addHost("h%d" % i, **params), s)
        net.build()
        self.assertEqual([h.IP() for h in net.hosts], ["192.168.7.5", "192.168.7.99", "192.168.7.7"])
        self.assertEqual(net["h2"].MAC(), "00:00:00:00:00:07")
        self.assertIsNone(net.addHost("h9").IP())
        small = Mininet(ipBase="10.0.0.0/30", controller=None)
        with self.assertRaisesRegex(AssertionError, "Not enough IP addresses in the subnet"):
            for i in range(9):
                small.addHost("h%d" % i)

    def test_ids(self):
        """A dpid is the name's number, or what is given."""
        net = Mininet(controller=None)
        self.assertEqual([net.addSwitch(n).dpid[-2:] for n in ("s10", "s1x2", "leaf12")], ["0a", "01", "0c"])
        self.assertEqual(net.addSwitch("a", dpid="00:00:00:00:00:00:00:1f").dpid, "000000000000001f")
        with self.assertRaisesRegex(Exception, "Unable to derive default datapath ID - please either specify a dpid"):
            net.addSwitch("nameless")
        self.assertNotIn("nameless", net.fabric.topology()["nodes"])

    def test_ports(self):
        """Switches count from 1, and have lo as port 0; names and ports can be given."""
        net = Mininet(controller=None)
        h, s = net.addHost("h1"), net.addSwitch("s1")
        net.addLink(h, s, port2=7)
        net.addLink(h, s, intfName1="up0", params1={"ip": "10.1.0.1/24"})
        self.assertEqual(h.intfNames(), ["h1-eth0", "up0"])
        self.assertEqual(s.intfNames(), ["lo", "s1-eth7", "s1-eth8"])
        self.assertRaises(KeyError, h.intf, "h1-eth7")
        self.assertEqual((h.defaultIntf().name, s.defaultIntf().name, h.intf("up0").IP()), ("h1-eth0", "lo", "10.1.0.1"))
        net.addLink(h, s, port1=5, params1={"port": 6})
        self.assertIn("h1-eth5", h.intfNames(), "a port that is given goes before one among an interface's parameters")
        self.assertEqual(net.linksBetween(h, s), net.links)
        with self.assertRaisesRegex(Exception, "Error creating interface pair"):
            net.addLink(net.addHost("averyverylongname"), s)


class TestParts(unittest.TestCase):
    """What programs use without a network."""

    def test_graph(self):
        """A topology's links by either end and by key, in the order of nodes; what is set is found again."""
        t = Topo(hopts={"cpu": 1}, lopts={"bw": 5})
        for name in ("h10", "h2"):
            t.addHost(name)
        t.addSwitch("s1", dpid="1")
        keys = [t.addLink(*ends, **opts) for ends, opts in ((("s1", "h2"), {}), (("h10", "s1"), {}), (("h10", "s1"), {"loss": 1}))]
        self.assertEqual(keys, [1, 1, 2])
        self.assertEqual((t.hosts(), t.hosts(sort=False), t.switches()), (["h2", "h10"], ["h10", "h2"], ["s1"]))
        self.assertEqual(t.links(), [("h10", "s1"), ("h10", "s1"), ("s1", "h2")])
        self.assertEqual(t.links(sort=True, withKeys=True), [("h10", "s1", 1), ("h10", "s1", 2), ("s1", "h2", 1)])
        self.assertEqual((t.port("s1", "h2"), t.port("h10", "s1")), ((1, 0), [(0, 2), (1, 3)]))
        self.assertEqual((t.nodeInfo("h2"), t.nodeInfo("s1")), ({"cpu": 1}, {"isSwitch": True, "dpid": "1"}))
        self.assertEqual(t.linkInfo("h2", "s1"), {"bw": 5, "node1": "s1", "node2": "h2", "port1": 1, "port2": 0})
        t.setlinkInfo("s1", "h10", {"loss": 2}, key=2)
        self.assertEqual((t.linkInfo("h10", "s1", 2), t.linkInfo("h10", "s1")["bw"]), ({"loss": 2}, 5))
        self.assertEqual(t.g.edge["h10"]["s1"], t.g["s1"]["h10"])
        self.assertEqual(t.g.edges(keys=True), [("h10", "s1", 1), ("h10", "s1", 2), ("h2", "s1", 1)])

        class Other:
            def add_nodes_from(self, nodes):
                self.nodes = dict(nodes)

            def add_edges_from(self, edges):
                self.edges = list(edges)

        self.assertEqual(t.convertTo(Other).nodes, t.g.node)
        self.assertEqual(t.convertTo(Other).edges[1], ("h10", "s1", 2, {"loss": 2}))

    def test_numbers(self):
        """Addresses, names and options of mn, as numbers and back."""
        self.assertEqual([util.ipStr(util.ipParse(ip)) for ip in ("10.1", "1.2.3.4")], ["10.0.0.1", "1.2.3.4"])
        self.assertEqual([util.netParse(net) for net in ("10.0/8", "10.0.0.0", "10.0.1.7/24")],
                         [(0x0A000000, 8), (0x0A000000, 24), (0x0A000107, 24)])
        self.assertEqual(util.ipAdd(3, prefixLen=24, ipBaseNum=0x0A000107), "10.0.1.3")
        self.assertEqual(util.macColonHex(0x1FF), "00:00:00:00:01:ff")
        self.assertEqual(sorted(["s10", "s9", "a"], key=util.natural), ["a", "s9", "s10"])
        self.assertEqual(util.splitArgs("x,1,2.5,y,k=3,w=a=b"), ("x", [1, 2.5, "y"], {"k": 3, "w": "a=b"}))
        self.assertEqual([util.checkInt("1.5"), util.checkFloat("1.5"), util.checkFloat("x")], [False, True, False])
        self.assertTrue(util.StrictVersion("2.10") > "2.9")

    def test_classes(self):
        """A class with further arguments says so in its name; a call has its own before, if they are not overridden."""
        special = util.specialClass(dict, prepend=[{"p": 0}], defaults={"a": 1, "b": 2}, override={"c": 3})
        self.assertEqual(special(b=5, c=6), {"p": 0, "a": 1, "b": 5, "c": 3})
        self.assertEqual(util.customClass({"d": dict}, "d,x=1").__name__, "dict{'x': 1}")
        self.assertEqual(util.specialClass(partial(dict, a=1), defaults={"b": 2})(), {"a": 1, "b": 2})
        with self.assertRaisesRegex(Exception, "error: e is unknown - please specify one of"):
            util.customClass({"d": dict}, "e")

    def test_running(self):
        """Commands as text, lists and words; outputs apart and together; a false answer ends the program."""
        self.assertEqual(util.errRun("sh", "-c", "echo x; echo y >&2; exit 3"), ("x\n", "y\n", 3))
        self.assertEqual(quietRun("echo $((1+1)); echo ü >&2", shell=True), "2\nü\n")
        self.assertEqual(quietRun(["echo", "a  b", 1]), "a  b 1\n")
        self.assertRaises(Exception, util.errFail, "false")
        self.assertEqual([util.isShellBuiltin(c) for c in ("cd /", "ls")], [True, False])
        tries = []
        self.assertEqual(util.retry(3, 0, lambda: tries.append(1) or len(tries) == 2), True)
        with said("output"), self.assertRaises(SystemExit):
            util.retry(1, 0, lambda: tries.append(1))
        self.assertEqual(len(tries), 4)

    def test_pmonitor(self):
        """Whole lines, with what comes last without an end; or pieces as they come; and what is said of silence. The end is not
        said, but what has ended is not in popens any more."""
        def read(script, **options):
            popens = {"h": subprocess.Popen(script, shell=True, stdout=subprocess.PIPE)}
            self.addCleanup(popens["h"].communicate)
            said = list(pmonitor(popens, **options))
            self.assertEqual(popens, {})
            return said
        self.assertEqual(read("printf 'a\\nb\\rc\\n\\nlast'", timeoutms=None, readmax=3),
                         [("h", text) for text in ("a\n", "b\rc\n", "\n", "last")])
        self.assertEqual("".join(text for _h, text in read("printf 'a\\nb'", readline=False)), "a\nb")
        self.assertEqual(read("sleep 2", timeoutms=20)[0], (None, ""))

    def test_log(self):
        """Things joined by blanks, without line ends; what is below the level is not said; an unknown level is an error."""
        with said("output") as text:
            info("nothing")
            log.output("100% of", 2, "\n")
            log.lg.warn("lg", None)
        self.assertEqual(text.getvalue(), "100% of 2 \nlg None")
        with self.assertRaisesRegex(Exception, "loud"):
            setLogLevel("loud")


class TestTexts(Case):
    """What is printed, to the letter."""

    def test_start_and_stop(self):
        with said() as text:
            net = Mininet(MinimalTopo(), waitConnected=True)
            net.start()
            net.pingAll()
            net.stop()
        got = re.sub(r"\*\*\* Switches are .*\n", "", text.getvalue())
        self.assertEqual(got, """*** Creating network
*** Adding controller
*** Adding hosts:
h1 h2 \n*** Adding switches:
s1 \n*** Adding links:
(h1, s1) (h2, s1) \n*** Configuring hosts
h1 h2 \n*** Starting controller
c0 \n*** Starting 1 switches
s1 ...
*** Waiting for switches to connect
s1 \n*** Ping: testing ping reachability
h1 -> h2 \nh2 -> h1 \n*** Results: 0% dropped (2/2 received)
*** Stopping 1 controllers
c0 \n*** Stopping 2 links
..
*** Stopping 1 switches
s1 \n*** Stopping 2 hosts
h1 h2 \n*** Done
""")

    def test_prompt(self):
        """Commands of the prompt, and what is wrong."""
        net = self.start(MinimalTopo())
        self.assertEqual(prompt(net, "nodes"), "available nodes are: \nc0 h1 h2 s1\n")
        self.assertEqual(prompt(net, "net"), "h1 h1-eth0:s1-eth1\nh2 h2-eth0:s1-eth2\ns1 lo:  s1-eth1:h1-eth0 s1-eth2:h2-eth0\nc0\n")
        self.assertEqual(prompt(net, "links"), "h1-eth0<->s1-eth1 (OK OK) \nh2-eth0<->s1-eth2 (OK OK) \n")
        self.assertEqual(prompt(net, "intfs"), "h1: h1-eth0\nh2: h2-eth0\ns1: lo,s1-eth1,s1-eth2\nc0: \n")
        self.assertEqual(prompt(net, "ports"), "s1 lo:0 s1-eth1:1 s1-eth2:2 \n")
        self.assertRegex(prompt(net, "dump"), r"""^<Host h1: h1-eth0:10\.0\.0\.1 pid=\d+> 
<Host h2: h2-eth0:10\.0\.0\.2 pid=\d+> 
<OVSSwitch s1: lo:127\.0\.0\.1,s1-eth1:None,s1-eth2:None pid=\d+> 
<Controller c0: 127\.0\.0\.1:6653 pid=\d+> \n$""")
        self.assertEqual(prompt(net, "foo"), "*** Unknown command: foo\n")
        self.assertEqual(prompt(net, "h1"), "*** Please enter a command for node: h1 <cmd>\n")
        self.assertEqual(prompt(net, "py h1.IP()  # what it is"), "10.0.0.1\n")
        self.assertEqual(prompt(net, "py h1.nothing"), "'Host' object has no attribute 'nothing'\n")
        self.assertEqual(prompt(net, "px x = 2", "py x + 1"), "3\n")
        self.assertEqual(prompt(net, "iperf h1 h9"), "node 'h9' not in network\n")
        self.assertIn("1 received", prompt(net, "h1 ping -c1 h2"))
        self.assertEqual(prompt(net, "h1 echo h2 h22"), "10.0.0.2 h22\r\n")
        self.assertEqual(prompt(net, "h1 seq 9000").split(), [str(n) for n in range(1, 9001)])
        self.assertRegex(prompt(net, "time py 5"), r"^5\n\*\*\* Elapsed time: \d+\.\d{6} secs\n$")
        self.assertRegex(prompt(net, "dpctl dump-flows"), r"^\*\*\* s1 -{72}\n")
        self.assertIn("unreachable", prompt(net, "link s1 h1 down", "h1 ping -c1 h2"))
        self.assertIn("1 received", prompt(net, "link s1 h1 up", "h1 ping -c1 h2"))
        self.assertIn("Results: 0% dropped (2/2 received)", prompt(net, "pingall", "exit", "nonsense after it"))

    def test_prompt_extended(self):
        """Commands are added by a subclass, and by assignment."""
        net = self.start(MinimalTopo())

        class Mine(CLI):
            def do_count(self, _line):
                info("%d hosts\n" % len(self.mn.hosts))

        CLI.do_send = lambda self, line: info("sent %s from %s\n" % (line, self.mn["h1"].IP()))
        self.addCleanup(lambda: delattr(CLI, "do_send"))
        with said() as text, tempfile.NamedTemporaryFile("w") as f:
            f.write("count\nsend it\n")
            f.flush()
            Mine(net, script=f.name)
        self.assertIn("2 hosts\n", text.getvalue())
        self.assertIn("sent it from 10.0.0.1\n", text.getvalue())

    def test_shaping(self):
        """Links say what shapes them."""
        with said() as text:
            net = Mininet(controller=None)
            net.addLink(net.addHost("h1"), net.addHost("h2"), cls=TCLink, bw=10, delay="5ms", jitter="1ms", loss=2)
        self.assertEqual(text.getvalue(), "(10.00Mbit 5ms delay 1ms jitter 2.00000% loss) " * 2)
        with said() as text:
            net.addLink(net["h1"], net["h2"], cls=TCLink, bw=2000)
        self.assertIn("Bandwidth limit 2000 is outside supported range 0..1000 - ignoring", text.getvalue())

    def test_shaping_of_both_ends(self):
        """What is said of both ends goes before what is said of one, as in Mininet."""
        net = Mininet(controller=None)
        with said():
            link = net.addLink(net.addHost("h1"), net.addHost("h2"), cls=TCLink, bw=10, params1={"bw": 5}, params2={"delay": "5ms"})
        self.assertEqual((link.intf1.shape, link.intf2.shape), ({"bandwidth": "10000000bit"}, {"bandwidth": "10000000bit", "delay": "5000000ns"}))

    def test_shaping_numbers(self):
        """Numbers are what Mininet 2.3 and tc make of them, whatever type they have."""
        net = Mininet(controller=None)
        intf = net.addLink(net.addHost("h1"), net.addHost("s1"), cls=TCLink).intf2
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shaping.txt"), encoding="utf-8") as f:
            table = [line.split("|") for line in f if "|" in line and not line.startswith("#")]
        self.assertGreater(len(table), 30)
        for options, numbers in table:
            given = eval("dict(%s)" % options, {"Decimal": Decimal, "Fraction": Fraction})  # pylint: disable=eval-used
            units = zip(("bandwidth", "delay", "jitter", "loss", "queue"), ("%sbit", "%sns", "%sns", "%s%%", "%s"), numbers.split())
            expected = {name: unit % value for name, unit, value in units if value != "0"}
            with self.subTest(given), said():
                intf.shape = {}
                intf.config(**given)
                got = {name: str(value) for name, value in intf.shape.items()}
                percent = [float(shape.pop("loss", "0%").rstrip("%")) for shape in (got, expected)]
                self.assertEqual((got, percent[0]), (expected, percent[1]))
        for given in ({"bw": "10"}, {"loss": "1%"}, {"max_queue_size": "100"}):
            with self.subTest(given), self.assertRaisesRegex(TypeError, "is a number, not"):
                intf.config(**given)

    def test_limits(self):
        """Shares of the machine and processors, in the forms that Mininet and cpuset take."""
        net = Mininet(controller=None)
        for number, (cpu, expected) in enumerate(((0.25, "25.0000000%"), (Fraction(1, 4), "25.0000000%"), (Decimal("0.5"), "50.0000000%"),
                                                  (1e-6, "0.0001000%"), (-1, None), (None, None), (0, None))):
            host = net.addHost("h%d" % number, cls=CPULimitedHost, cpu=cpu)
            host.preset()
            self.assertEqual(host.fabricOptions(net.fabric).get("cpu"), expected, cpu)
        for cores, expected in ((0, [0]), ("0", [0]), ("0,2", [0, 2]), ([0, 1], [0, 1]), ("1-3,5", [1, 2, 3, 5]), (["0", "2-3"], [0, 2, 3])):
            host.setCPUs(cores)
            self.assertEqual(host.fabricOptions(net.fabric)["cores"], expected, cores)

    def test_connections(self):
        net = Mininet(MinimalTopo(), controller=None)
        with said() as text:
            dumpNodeConnections(net.hosts)
        self.assertEqual(text.getvalue(), "h1 h1-eth0:s1-eth1\nh2 h2-eth0:s1-eth2\n")


class TestNodes(Case):
    """Commands in nodes."""

    def test_shell(self):
        """A node's shell keeps what it is told; background jobs have a pid; what waits can be interrupted."""
        net = self.start(MinimalTopo())
        h1, h2 = net.get("h1", "h2")
        self.assertEqual(h1.cmd("cd /tmp; X=5"), "")
        self.assertEqual(h1.cmd("pwd; echo $X"), "/tmp\r\n5\r\n")
        self.assertEqual(h1.cmd("echo", "a", "b"), "a b\r\n")
        self.assertEqual(h1.cmd(["echo", 1]), "1\r\n")
        self.assertEqual(h1.cmd("printf 'no end'"), "no end")
        self.assertEqual(h1.cmd("sleep 100 &"), "")
        for _ in range(1000):  # the shell has made a process, which becomes sleep soon
            if os.readlink("/proc/%d/exe" % h1.lastPid).endswith("sleep"):
                break
            time.sleep(0.01)
        else:
            self.fail("the pid is not that of the job")
        self.assertEqual(os.readlink("/proc/%d/ns/net" % h1.lastPid), os.readlink("/proc/%d/ns/net" % h1.pid))
        h1.cmd("kill %1; wait")
        self.assertFalse(os.path.exists("/proc/%d" % h1.lastPid) if h1.lastPid else False)
        h1.sendCmd("echo begun; sleep 1000")
        self.assertTrue(h1.waiting)
        self.assertIn("begun", h1.monitor(20000))
        self.assertEqual(h1.monitor(timeoutms=50), "")
        h1.sendInt()
        h1.waitOutput()
        self.assertFalse(h1.waiting)
        self.assertIn("ü", h2.cmd("echo ü"))
        self.assertGreater(len(h2.cmd("seq 20000")), 100000)
        self.assertNotEqual(os.readlink("/proc/%d/ns/net" % h2.pid), os.readlink("/proc/self/ns/net"))
        os.kill(h2.pid, 9)
        self.assertIn(h2.cmd("true"), ("", None))

    def test_popen(self):
        """popen has pipes of its own, a pid that is the program's, and exit codes; pmonitor reads several."""
        net = self.start(MinimalTopo())
        h1, h2 = net.get("h1", "h2")
        h1.cmd("cd /; X=5")
        p = h1.popen("sh -c exit", stdin=subprocess.PIPE)
        self.assertEqual(p.wait(), 0)
        p.communicate()
        self.assertEqual(h1.popen("echo $HOME; pwd >&2; exit 4", shell=True).communicate()[1].decode().strip(), os.getcwd())
        self.assertEqual(h1.pexec("sh -c 'exit 3'")[2], 2)  # split at blanks, without regard to quotes
        self.assertEqual(h1.pexec(["sh", "-c", "echo x; echo y >&2; exit 4"]), ("x\n", "y\n", 4))
        p = h1.popen(["sleep", "100"])
        p.terminate()
        self.assertEqual(p.wait(), -15)
        p.communicate()
        popens = {h: h.popen("ping -c2 -i0.2 10.0.0.2") for h in (h1, h2)}
        lines = {h1: [], h2: []}
        for host, line in pmonitor(dict(popens), timeoutms=20000):
            if host:
                lines[host].append(line)
        for h, p in popens.items():
            self.assertIn("2 received", "".join(lines[h]))
            p.communicate()

    def test_router(self):
        """A node of one's own routes between three networks."""
        class LinuxRouter(Node):
            def config(self, **params):
                super().config(**params)
                self.cmd("sysctl net.ipv4.ip_forward=1")

            def terminate(self):
                self.cmd("sysctl net.ipv4.ip_forward=0")
                super().terminate()

        class NetworkTopo(Topo):
            def build(self, **_opts):
                r = self.addNode("r0", cls=LinuxRouter, ip="192.168.1.1/24")
                for i, net in enumerate(("192.168.1", "172.16.0", "10.0.0"), 1):
                    s = self.addSwitch("s%d" % i)
                    self.addLink(s, r, intfName2="r0-eth%d" % i, params2={"ip": net + ".1/24"})
                    self.addLink(self.addHost("h%d" % i, ip=net + ".100/24", defaultRoute="via %s.1" % net), s)

        net = self.start(NetworkTopo(), waitConnected=True)
        self.assertEqual(net["r0"].cmd("cat /proc/sys/net/ipv4/ip_forward").strip(), "1")
        self.assertIn("172.16.0.0/24 dev r0-eth2", net["r0"].cmd("ip route"))
        self.assertIn("ttl=63", net["h1"].cmd("ping -c1", net["h3"].IP()))
        self.assertEqual(net.pingAll(), 0)

    def test_what_is_wrong(self):
        """It is said by names and by lines of the script, not of a file that nobody wrote."""
        net = Mininet(controller=None)
        self.addCleanup(lambda: net.fabric.ended or net.stop())
        h1 = net.addHost("h1", mac="zz")
        h2, line = net.addHost("h2", ip="10.0.0.300/8"), sys._getframe().f_lineno
        net.addLink(h1, h2, cls=TCLink, max_queue_size=10 ** 9)
        with self.assertRaises(Exception) as raised:
            net.start()
        for number, wrong in ((line + 1, "h1-eth0 -- h2-eth0: mac zz: not a MAC address"),
                              (line + 1, "h1-eth0 -- h2-eth0: queue 1000000000: not a queue length"),
                              (line + 1, "h1-eth0 -- h2-eth0: address 10.0.0.300/8: not an address")):
            self.assertIn("%s:%d: %s" % (__file__, number, wrong), str(raised.exception))
        self.assertNotIn(".yaml", str(raised.exception))

    def test_address_that_a_class_keeps(self):
        """A host has the address that its config() hands on, else its link's, else none."""
        class Drops(Node):
            def config(self, ip=None, **params):
                self.cmd("true")  # the lab is up from here on
                return super().config(**params)

        class Takes(Node):
            def config(self, **params):
                params.pop("ip")
                return super().config(**params)

        class Alone(Node):
            def config(self, **_params):
                return {}

        class Passes(Node):
            def config(self, ip=None, **params):
                return super().config(ip=ip, **params)

        class Router(Node):
            def config(self, **params):
                super().config(**params)
                self.cmd("sysctl -w net.ipv4.ip_forward=1")

        net = Mininet(controller=None)
        middle = net.addHost("r1", cls=Router, ip="10.9.0.1/8")
        wanted = {"r1": ["10.9.0.1/8"]}
        for kind, own in ((Drops, None), (Takes, None), (Alone, None), (Passes, "10.1.0.1/16"), (Router, "10.1.0.2/16"), (Host, "")):
            for linked in ("", "192.168.3.1/24"):
                host = net.addHost("h%d" % len(net.hosts), cls=kind, **({} if own is None else {"ip": own}))
                net.addLink(host, middle, params1={"ip": linked} if linked else None)
                wanted[host.name] = [own or linked] if own or linked else []
        self.addCleanup(lambda: net.fabric.ended or net.stop())
        net.start()
        for host in net.hosts:
            words = host.cmd("ip -4 -o addr show dev %s-eth0" % host).split()
            self.assertEqual([words[3]] if words else [], wanted[host.name], (host.name, type(host).__name__))
            self.assertEqual(host.IP(), wanted[host.name][0].split("/")[0] if words else None)

    def test_mac_without_colons(self):
        """A MAC in twelve digits is the device's, from the start and later; MAC() is what was given. Neighbours know it."""
        net = Mininet(topo=None, controller=None, autoStaticArp=True)
        h1, h2 = net.addHost("h1", mac="00000000001c"), net.addHost("h2", mac="0:0:0:0:0:2A")
        net.addLink(h1, h2)
        self.addCleanup(lambda: net.fabric.ended or net.stop())
        net.start()
        device = "cat /sys/class/net/%s/address"
        self.assertEqual(h1.cmd(device % "h1-eth0").strip(), "00:00:00:00:00:1c")
        self.assertEqual(h2.cmd(device % "h2-eth0").strip(), "00:00:00:00:00:2a")
        self.assertEqual(h1.MAC(), "00000000001c")
        self.assertIn("00:00:00:00:00:1c", h2.cmd("ip neigh show", h1.IP()))
        h1.setMAC("00000000001d")
        self.assertEqual(h1.cmd(device % "h1-eth0").strip(), "00:00:00:00:00:1d")

    def test_private_directories(self):
        """Both kinds, which are made where they are not, with the modes that Mininet's have."""
        with tempfile.TemporaryDirectory() as d:
            host = partial(Host, privateDirs=["/tmp/%s-own" % os.environ["TRIVET_LAB"], (d + "/seen", d + "/%(name)s/real")])
            net = self.start(MinimalTopo(), host=host)
            net["h1"].cmd("echo mine >%s/seen/file; touch /tmp/%s-own/x" % (d, os.environ["TRIVET_LAB"]))
            with open(d + "/h1/real/file") as f:
                self.assertEqual(f.read(), "mine\n")
            self.assertEqual(net["h1"].cmd("stat -c %%a /tmp/%s-own %s/seen" % (os.environ["TRIVET_LAB"], d)).split(), ["1777", "755"])
            self.assertEqual(os.listdir(d + "/h2/real"), [])
            self.assertEqual(net["h2"].cmd("ls /tmp/%s-own" % os.environ["TRIVET_LAB"]), "")
            net.stop()

    def test_cpu(self):
        """A share of the machine, and cores, are the group's limits."""
        net = Mininet(controller=None)
        h = net.addHost("h1", cls=CPULimitedHost, cpu=0.25, cores=0)
        net.addLink(h, net.addHost("h2"))
        self.addCleanup(net.stop)
        net.start()
        limits = [p for p in glob.glob("/sys/fs/cgroup/**/trivet/%s/h1/cpu.*" % net.fabric.name, recursive=True)
                  if p.endswith(("cpu.max", "cfs_quota_us"))]
        with open(limits[0]) as f:
            self.assertEqual(int(f.read().split()[0]), int(25000 * os.cpu_count()))
        self.assertEqual(h.cmd("taskset -pc $$").split()[-1], "0")

    def test_machine(self):
        """A node outside of namespaces is the machine; a link leads into the lab, and nothing of it stays."""
        net = Mininet(topo=MinimalTopo())
        root = Node("root", inNamespace=False)
        intf = net.addLink(root, net["s1"]).intf1
        root.setIP("10.123.0.1/8", intf=intf)
        self.addCleanup(lambda: net.fabric.ended or net.stop())
        net.start()
        self.assertEqual(os.readlink("/proc/%d/ns/net" % root.pid), os.readlink("/proc/self/ns/net"))
        self.assertIn("1 received", root.cmd("ping -c1 10.0.0.1"))
        root.terminate()
        net.stop()
        self.assertNotIn("root-eth0", quietRun("ip link"))


class TestNets(Case):
    """Networks as scripts make them."""

    def test_by_hand(self):
        """addHost, addSwitch, addLink, addController; get, [], in, len."""
        net = Mininet(controller=Controller, switch=OVSKernelSwitch)
        net.addController("c0")
        h1, h2 = net.addHost("h1", ip="10.0.0.11"), net.addHost("h2", ip="10.0.0.12", mac="00:00:00:00:00:99")
        s1 = net.addSwitch("s1")
        net.addLink(h1, s1)
        net.addLink("h2", "s1")
        self.addCleanup(net.stop)
        net.start()
        self.assertEqual((net["h1"], net.get("h1", "h2"), "h3" in net, len(net), sorted(net)),
                         (h1, [h1, h2], False, 4, ["c0", "h1", "h2", "s1"]))
        self.assertIn("00:00:00:00:00:99", h2.cmd("ip link"))
        self.assertEqual(net.pingAll(), 0)
        with said() as text:
            (_h1, _h2, result), _ = net.pingFull()
        self.assertEqual(result[:2], (1, 1))
        self.assertRegex(text.getvalue(), r"\*\*\* Results: \n h1->h2: 1/1, rtt min/avg/max/mdev [\d.]+/[\d.]+/[\d.]+/[\d.]+ ms\n")

    def test_as_miniedit_exports(self):
        """No net.start(): controllers and switches are started one by one."""
        net = Mininet(topo=None, build=False, ipBase="10.0.0.0/8")
        c0 = net.addController(name="c0", controller=Controller, protocol="tcp", port=6633)
        s1 = net.addSwitch("s1", cls=OVSKernelSwitch)
        h1, h2 = (net.addHost("h%d" % i, cls=Host, ip="10.0.0.%d" % i, defaultRoute=None) for i in (1, 2))
        h1s1 = {"bw": 10, "delay": "1ms"}
        net.addLink(h1, s1, cls=TCLink, **h1s1)
        net.addLink(h2, s1)
        self.addCleanup(net.stop)
        net.build()
        for controller in net.controllers:
            controller.start()
        net.get("s1").start([c0])
        self.assertEqual(net.pingAll(), 0)

    def test_changes(self):
        """Hosts and links come, are shaped anew, and go while it runs; shells and what else is there stay."""
        net = self.start(LinearTopo(2))
        net["h1"].cmd("KEPT=yes")
        h3 = net.addHost("h3")
        link = net.addLink(h3, net["s1"], cls=TCLink)
        net["s1"].attach("s1-eth3")
        h3.setIP("10.0.0.33/8")
        self.assertIn("1 received", h3.cmd("ping -c1 10.0.0.2"))
        link.intf1.config(delay="20ms")
        rtt = float(re.search(r"= ([\d.]+)/", h3.cmd("ping -c3 -i0.2 10.0.0.1")).group(1))
        self.assertGreaterEqual(rtt, 20)
        net.configLinkStatus("s1", "s2", "down")
        self.assertIn("0 received", h3.cmd("ping -c1 -W1 10.0.0.2"))
        net.configLinkStatus("s1", "s2", "up")
        self.assertEqual(net.ping([net["h1"], net["h2"]]), 0)
        net.delLinkBetween(h3, net["s1"])
        self.assertNotIn("h3-eth0", h3.cmd("ip link"))
        net.delHost(h3)
        self.assertNotIn("h3", net)
        self.assertEqual(net["h1"].cmd("echo $KEPT").strip(), "yes")
        self.assertEqual(net.pingAll(), 0)

    def test_switches(self):
        """Bridges, a switch that stands alone, one that does what it likes; they stop and start again, and so do their ports."""
        for switch in (OVSBridge, LinuxBridge, partial(OVSSwitch, failMode="standalone")):
            with self.subTest(switch=switch):
                net = self.start(LinearTopo(3), switch=switch, controller=None)
                self.assertEqual(net.pingAll(), 0)
                s1, s2 = net["s1"], net["s2"]
                for stopped in s1, s2:
                    stopped.stop(deleteIntfs=False)
                s1.start([])
                self.assertEqual(net.pingAll(timeout="0.1"), 100)
                s2.start([])
                s1.detach("s1-eth1")
                self.assertGreater(net.pingAll(timeout="0.1"), 0)
                s1.attach("s1-eth1")
                self.assertEqual(net.pingAll(timeout="1"), 0)
                net.stop()

        class Hub(Switch):
            """Starts a program of its own at its ports."""

            def start(self, controllers):
                self.cmd("ip link add br0 type bridge; ip link set br0 up")
                for intf in self.intfList()[1:]:
                    self.cmd("ip link set %s master br0" % intf)

        net = self.start(SingleSwitchTopo(2), switch=Hub, controller=None)
        self.assertEqual(net.pingAll(), 0)

    def test_controllers(self):
        """A remote controller that is not there, partial, a callable, an instance; and one that starts a program."""
        with said() as text:
            net = Mininet(MinimalTopo(), controller=partial(RemoteController, ip="127.0.0.1", port=6699))
        self.assertIn("Unable to contact the remote controller at 127.0.0.1:6699\n", text.getvalue())
        self.assertEqual((net.controllers[0].IP(), net.controllers[0].port), ("127.0.0.1", 6699))
        self.assertEqual(Mininet(MinimalTopo(), controller=lambda name: OVSController(name)).controllers[0].name, "c0")
        self.assertEqual(Mininet(MinimalTopo(), controller=[Controller("x1")]).controllers[0].name, "x1")

        class Own(Controller):
            def start(self):
                self.cmd("sleep 77 &")
                self.started = self.lastPid

        own = Own("c7", port=6698)
        own.start()
        self.assertTrue(os.path.exists("/proc/%d" % own.started))
        own.cmd("kill %1")
        own.stop()

    def test_nat_inside(self):
        """A NAT in a namespace hides a network behind its address."""
        class Two(Topo):
            def build(self):
                outside, inside = self.addSwitch("s1"), self.addSwitch("s2")
                self.addLink(self.addHost("h1"), outside)
                nat = self.addNode("nat1", cls=NAT, subnet="192.168.1.0/24", inetIntf="nat1-eth0", localIntf="nat1-eth1")
                self.addLink(nat, outside, intfName1="nat1-eth0")
                self.addLink(nat, inside, intfName1="nat1-eth1", params1={"ip": "192.168.1.1/24"})
                self.addLink(self.addHost("h2", ip="192.168.1.100/24", defaultRoute="via 192.168.1.1"), inside)

        net = self.start(Two(), waitConnected=True)
        self.assertIn("1 received", net["h2"].cmd("ping -c1 10.0.0.1"))
        self.assertNotIn("1 received", net["h1"].cmd("ping -c1 -W1 192.168.1.100"))

    def test_nat_outside(self):
        """addNAT leads to the machine."""
        net = Mininet(MinimalTopo())
        self.addCleanup(net.stop)
        net.addNAT().configDefault()
        net.start()
        self.assertEqual(net["nat0"].IP(), "10.0.0.3")
        self.assertIn("default via 10.0.0.3", net["h1"].cmd("ip route"))
        quietRun("ip addr add 203.0.113.1/32 dev lo")
        self.addCleanup(lambda: quietRun("ip addr del 203.0.113.1/32 dev lo"))
        self.assertIn("1 received", net["h1"].cmd("ping -c1 203.0.113.1"))

    def test_iperf(self):
        """TCP within what the link allows, UDP with its rate; it returns with any iperf."""
        if not which("iperf"):
            self.skipTest("iperf is not installed")
        net = self.start(SingleSwitchTopo(2), link=partial(TCLink, bw=5))
        with said() as text:
            server, client = net.iperf(seconds=1, fmt="m")
        self.assertRegex(text.getvalue(), r"^\*\*\* Iperf: testing TCP bandwidth between h1 and h2 \n\*\*\* Results: \['[\d.]+ Mbits/sec', '")
        self.assertLess(float(server.split()[0]), 5.5)
        self.assertEqual(net.iperf(l4Type="UDP", udpBw="1M", seconds=1)[0], "1M")

    def test_arp(self):
        """staticArp: nothing needs to be asked."""
        net = self.start(SingleSwitchTopo(3), autoStaticArp=True, autoSetMacs=True)
        self.assertIn("10.0.0.3 dev h1-eth0 lladdr 00:00:00:00:00:03 PERMANENT", net["h1"].cmd("ip neigh"))

    def test_open_vswitch(self):
        """What a script says by the commands of Open vSwitch, it says to the lab's switches, of whichever datapath."""
        self.addCleanup(os.environ.pop, "TRIVET_DATAPATH", None)
        for datapath in ("embedded", "ovs"):
            if not which("ovs-ofctl" if datapath == "embedded" else "ovs-vswitchd"):
                self.skipTest("Open vSwitch is not installed")
            with self.subTest(datapath):
                os.environ["TRIVET_DATAPATH"] = datapath
                before = dict(os.environ)
                net = self.start(SingleSwitchTopo(2), controller=None)
                s1 = net["s1"]
                self.assertNotIn("actions", s1.dpctl("dump-flows"))  # secure: it does what it is told
                for a, b in ((1, 2), (2, 1)):
                    self.assertEqual(quietRun("ovs-ofctl add-flow s1 in_port=%d,actions=output:%d" % (a, b)), "")
                self.assertEqual(net.pingAll(), 0)
                for way in s1.dpctl("dump-flows"), s1.cmd("ovs-ofctl dump-flows s1"), quietRun("ovs-ofctl dump-flows s1"):
                    self.assertIn("in_port=1 actions=output:2", way.replace('"s1-eth1"', "1").replace('"s1-eth2"', "2"))
                self.assertIn("s1", quietRun("ovs-vsctl list-br").split())
                self.assertEqual(s1.vsctl("get Interface s1-eth2 ofport").strip(), "2")
                self.assertEqual(prompt(net, "s1 ovs-vsctl list-br").split(), ["s1"])
                net.stop()
                self.assertEqual(dict(os.environ), before)

    def test_custom(self):
        """custom() and Intf classes of one's own; run() starts and stops."""
        net = Mininet(SingleSwitchTopo(2), host=custom(CPULimitedHost, cpu=0.5), link=custom(TCLink, bw=50))
        self.assertEqual(net.run(net.pingAll), 0)
        self.assertTrue(net.fabric.ended)

    def test_nothing_is_left_by_a_script_that_is_killed(self):
        """Its lab goes by itself, though the script cannot do anything any more."""
        lab = os.environ["TRIVET_LAB"] + "-killed"
        script = ("import os; from mininet.net import Mininet; from mininet.topo import MinimalTopo; n = Mininet(MinimalTopo()); n.start(); "
                  "print(os.path.exists('/run/trivet/%s'), flush=True); os.kill(os.getpid(), 9)" % lab)
        done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "TRIVET_LAB": lab, "PYTHONPATH": os.path.dirname(HERE)},
                              stdout=subprocess.PIPE, check=False)
        self.assertEqual((done.stdout, done.returncode), (b"True\n", -9))
        until = time.monotonic() + 30
        while os.path.exists("/run/trivet/" + lab) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertFalse(os.path.exists("/run/trivet/" + lab))

    def test_nothing_is_left(self):
        """Neither after stop nor after a script that has not called it."""
        net = self.start(MinimalTopo())
        net["h1"].cmd("sleep 1000 &")
        pid, name = net["h1"].lastPid, net.fabric.name
        net.stop()
        self.assertFalse(os.path.exists("/proc/%d/exe" % pid) and os.path.realpath("/proc/%d/exe" % pid))
        self.assertFalse(os.path.exists("/run/trivet/" + name))
        script = "from mininet.net import Mininet; from mininet.topo import MinimalTopo; n = Mininet(MinimalTopo()); n.start(); 1/0"
        subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.path.dirname(HERE)}, stderr=subprocess.DEVNULL,
                       check=False)
        self.assertFalse(os.path.exists("/run/trivet/" + name))


class TestCommand(Case):
    """mn, as a program."""

    def mn(self, *args, script=""):
        done = subprocess.run([sys.executable, "-m", "mininet.mn", *args], input=script.encode(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": os.path.dirname(HERE)}, check=False)
        self.assertEqual(done.returncode, 0)
        return done.stdout.decode()

    def test_options(self):
        self.assertEqual(self.mn("--version"), "2.3.0\n")
        self.assertTrue(self.mn("-h").startswith("Usage: mn [options]"))
        out = self.mn("--topo", "tree,depth=2,fanout=2", "--link", "tc,bw=10", "--mac", "--arp", "--test", "pingall+none")
        self.assertIn("(10.00Mbit) (10.00Mbit) (s1, s2)", out)
        self.assertIn("*** Results: 0% dropped (12/12 received)\n", out)
        self.assertRegex(out, r"\*\*\* Done\ncompleted in \d+\.\d{3} seconds\n$")
        self.assertIn("Caught exception. Cleaning up...\n\nException: Invalid topo name nosuch\n", self.mn("--topo", "nosuch"))
        for option in "--switch", "--controller", "--link", "--host":
            self.assertIn("Exception: error: nosuch is unknown - please specify one of", self.mn(option, "nosuch"))

    def test_custom_file(self):
        """topos of a file, tests of one's own, scripts before and after."""
        with tempfile.TemporaryDirectory() as d:
            with open(d + "/c.py", "w") as f:
                f.write("from mininet.topo import Topo\nclass T(Topo):\n    def build(self, n=2):\n"
                        "        for i in range(n):\n            self.addLink(self.addHost('a%d' % i), self.addSwitch('s1') if not i else 's1')\n"
                        "topos = {'mytopo': (lambda n=2: T(n))}\ntests = {'names': lambda net: print(sorted(net.keys()))}\n")
            with open(d + "/pre", "w") as f:
                f.write("py 'before'\n")
            out = self.mn("--custom", d + "/c.py", "--topo", "mytopo,3", "--test", "names", "--pre", d + "/pre", "--controller", "none",
                          "--switch", "ovsbr")
        self.assertIn("before\n", out)
        self.assertIn("['a0', 'a1', 'a2', 's1']", out)

    def test_prompt(self):
        self.assertIn("available nodes are: \nc0 h1 h2 s1\n", self.mn("-v", "output", script="nodes\nexit\n"))


class TestPublicNames(unittest.TestCase):
    LIST = """
import importlib, json, mininet, types
found = {}
for name in "topo topolib net node nodelib link cli log util clean term moduledeps".split():
    module = importlib.import_module("mininet." + name)
    for public in [n for n in dir(module) if n[0] != "_" and not isinstance(getattr(module, n), types.ModuleType)]:
        it = getattr(module, public)
        own = isinstance(it, type) and it.__module__.startswith("mininet.")
        found[name + "." + public] = [n for n in dir(it) if n[0] != "_"] if own else []
print(json.dumps([mininet.__path__[0], found]))
"""
    INSIDE = {"util.oldpexpect", "util.Pexpect", "util.pexpect"}  # None without pexpect

    def test_names(self):
        """Whatever programs find in the modules of an installed Mininet is here, what those import too, with all public methods of its
        classes."""
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        said = subprocess.run(["/usr/bin/python3", "-c", self.LIST], cwd="/", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if said.returncode != 0:
            self.skipTest("Mininet is not installed")
        _place, theirs = json.loads(said.stdout)
        self.assertIn("hosts", theirs["topo.Topo"])
        for name, methods in theirs.items():
            module, _, public = name.partition(".")
            if name in self.INSIDE or public == "StrictVersion":
                continue
            ours = getattr(importlib.import_module("mininet." + module), public, None)
            with self.subTest(name):
                self.assertIsNotNone(ours)
                self.assertEqual([m for m in methods if not hasattr(ours, m)], [])


if __name__ == "__main__":
    unittest.main()
