"""mn: Mininet's command line."""
import os
import sys
import time

from optparse import OptionParser

from mininet import _fabric
from mininet.clean import cleanup
from mininet.cli import CLI
from mininet.link import Link, OVSLink, TCLink, TCULink
from mininet.log import LEVELS, debug, error, info, lg, output, warn
from mininet.net import VERSION, Mininet, MininetWithControlNet
from mininet.node import (NOX, Controller, CPULimitedHost, DefaultController, Host, IVSSwitch, Node, NullController, OVSBridge,
                          OVSController, OVSSwitch, RemoteController, Ryu, UserSwitch, findController)
from mininet.nodelib import LinuxBridge
from mininet.topo import LinearTopo, MinimalTopo, SingleSwitchReversedTopo, SingleSwitchTopo
from mininet.topolib import TorusTopo, TreeTopo
from mininet.util import buildTopo, customClass, specialClass, splitArgs
from trivet import _binary

PLACEMENT = {"block": None, "random": None}
TOPODEF = "minimal"
TOPOS = {"minimal": MinimalTopo, "linear": LinearTopo, "reversed": SingleSwitchReversedTopo, "single": SingleSwitchTopo,
         "tree": TreeTopo, "torus": TorusTopo}
SWITCHDEF = "default"
SWITCHES = {"user": UserSwitch, "ovs": OVSSwitch, "ovsbr": OVSBridge, "ovsk": OVSSwitch, "ivs": IVSSwitch, "lxbr": LinuxBridge,
            "default": OVSSwitch}
HOSTDEF = "proc"
HOSTS = {"proc": Host, "rt": specialClass(CPULimitedHost, defaults=dict(sched="rt")),
         "cfs": specialClass(CPULimitedHost, defaults=dict(sched="cfs"))}
CONTROLLERDEF = "default"
CONTROLLERS = {"ref": Controller, "ovsc": OVSController, "nox": NOX, "remote": RemoteController, "ryu": Ryu,
               "default": DefaultController, "none": NullController}
LINKDEF = "default"
LINKS = {"default": Link, "tc": TCLink, "tcu": TCULink, "ovs": OVSLink}
TESTS = {name: True for name in ("pingall", "pingpair", "iperf", "iperfudp")}
ALTSPELLING = {"pingall": "pingAll", "pingpair": "pingPair", "iperfudp": "iperfUdp"}


def iperfUdp(net, *args, **kwargs):
    """The test iperfudp."""
    return net.iperf(*args, l4Type="UDP", **kwargs)


def runTests(mn, options):
    """Run the tests that --test names."""
    for group in options.test:
        for test in group.split("+"):
            name, args, kwargs = splitArgs(test)
            name = ALTSPELLING.get(name.lower(), name)
            if name.lower() == "none":
                continue
            if name.lower() == "build":
                continue
            if name.lower() == "all":
                mn.pingAll()
                mn.iperf()
            elif name == "iperfUdp":
                iperfUdp(mn, *args, **kwargs)
            elif name in TESTS and callable(TESTS[name]):
                TESTS[name](mn, *args, **kwargs)
            elif hasattr(mn, name):
                getattr(mn, name)(*args, **kwargs)
            else:
                raise Exception("Test %s is unknown - please specify one of %s" % (name, sorted(TESTS)))


def refuse(word, option=""):
    """End mn with what a word is, if it is something that another command takes."""
    said = _binary.run(["what-is", "mn", word]).stdout.strip()
    if said:
        error("%s%s\n" % (option, said))
        sys.exit(2)


def _choices(opts, choices, default, name, text, flags=()):
    opts.add_option("--" + name, *flags, type="string", default=default,
                    help="%s: %s[,param=value...]" % (text, "|".join(sorted(choices))))


class MininetRunner:
    """Builds a network by options, and runs tests or the prompt on it."""

    def __init__(self):
        self.options, self.args, self.validate = None, None, None
        self.parseArgs()
        self.setup()
        self.begin()

    def custom(self, _option, _flag, value, _parser):
        """Run the files of --custom."""
        for file in value.split(","):
            self.parseCustomFile(file)

    def parseCustomFile(self, fileName):
        """Run a file, and take over what it defines: topos, switches, hosts, controllers, links, tests."""
        if not os.path.isfile(fileName):
            raise Exception("could not find custom file: %s" % fileName)
        if not fileName.endswith(".py"):  # JSON is Python, too, and defines nothing
            refuse(fileName, "--custom ")
        _fabric._customFiles.append(fileName)
        names = {"__name__": "mininet_custom", "__file__": fileName}
        sys.path.insert(0, os.path.dirname(os.path.abspath(fileName)))
        with open(fileName) as f:
            exec(compile(f.read(), fileName, "exec"), names)  # pylint: disable=exec-used
        tables = {"topos": TOPOS, "switches": SWITCHES, "hosts": HOSTS, "controllers": CONTROLLERS, "links": LINKS, "tests": TESTS}
        if not set(names) & {*tables, "validate", "testnames"}:
            warn("--custom %s: it defines none of %s, so mn takes nothing of it; to run it as a program:  "
                 "sudo trivet run %s\n" % (fileName, ", ".join(tables), fileName))
        for name, value in names.items():
            if name in tables and isinstance(value, dict):
                tables[name].update(value)
            elif name == "validate":
                self.validate = value
            elif name == "testnames" and isinstance(value, dict):
                ALTSPELLING.update(value)

    def parseArgs(self):
        """Read the command line."""
        if "--version" in sys.argv[1:]:
            print(VERSION)
            sys.exit(0)
        opts = OptionParser(prog="mn", description="The %prog utility creates Mininet network from the command line. It can "
                            "create parametrized topologies, invoke the Mininet CLI, and run tests.", usage="%prog [options]\n"
                            "(type %prog -h for details)")
        _choices(opts, SWITCHES, SWITCHDEF, "switch", "switch class")
        _choices(opts, HOSTS, HOSTDEF, "host", "host class")
        opts.add_option("--controller", type="string", action="append", default=[],
                        help="controller class: %s[,param=value...]" % "|".join(sorted(CONTROLLERS)))
        _choices(opts, LINKS, LINKDEF, "link", "link class")
        _choices(opts, TOPOS, TOPODEF, "topo", "topology")
        opts.add_option("--clean", "-c", action="store_true", default=False, help="clean and exit")
        opts.add_option("--custom", action="callback", callback=self.custom, type="string",
                        help="read custom classes or params from .py file(s)")
        opts.add_option("--test", default=[], action="append", dest="test",
                        help="|".join(sorted(TESTS) + ["all", "none", "build"]) + ", or a method of Mininet; joined by +")
        opts.add_option("--xterms", "-x", action="store_true", default=False, help="spawn xterms for each node")
        opts.add_option("--ipbase", "-i", type="string", default="10.0.0.0/8", help="base IP address for hosts")
        opts.add_option("--mac", action="store_true", default=False, help="automatically set host MACs")
        opts.add_option("--arp", action="store_true", default=False, help="set all-pairs ARP entries")
        opts.add_option("--verbosity", "-v", type="choice", choices=list(LEVELS), default="info", help="|".join(LEVELS))
        opts.add_option("--innamespace", action="store_true", default=False, help="sw and ctrl in namespace?")
        opts.add_option("--listenport", type="int", default=6654, help="base port for passive switch listening")
        opts.add_option("--nolistenport", action="store_true", default=False, help="don't use passive listening port")
        opts.add_option("--pre", type="string", default=None, help="CLI script to run before tests")
        opts.add_option("--post", type="string", default=None, help="CLI script to run after tests")
        opts.add_option("--pin", action="store_true", default=False, help="pin hosts to CPU cores (requires --host cfs)")
        opts.add_option("--nat", action="callback", callback=self.nat, help="[option=val...] adds a NAT to the topology "
                        "that connects Mininet hosts to the physical network")
        opts.add_option("--version", action="store_true", help="prints the version and exits")
        opts.add_option("--wait", "-w", action="store_true", default=False, help="wait for switches to connect")
        opts.add_option("--twait", "-t", type="int", default=None, dest="twait", help="timed wait (s) for switches to connect")
        opts.add_option("--cluster", type="string", default=None, metavar="server1,server2...",
                        help="run on several machines (Mininet's experiment): not here")
        opts.add_option("--placement", type="choice", choices=list(PLACEMENT), default="block", help="node placement for --cluster")
        opts.set_defaults(nat=None)
        self.options, self.args = opts.parse_args()
        if self.args:
            refuse(self.args[0])
            opts.error("%s is one too many; mn takes options only" % self.args[0])

    @staticmethod
    def nat(_option, _flag, _value, parser):
        """The values behind --nat."""
        parser.values.nat = {}
        while parser.rargs and not parser.rargs[0].startswith("-"):
            for word in parser.rargs.pop(0).split(","):
                name, _, value = word.partition("=")
                parser.values.nat[name] = value

    def setup(self):
        """Set the log level, and validate."""
        lg.setLogLevel(self.options.verbosity)
        if self.validate:
            self.validate(self.options)

    def begin(self):
        """Build the network and run it."""
        options, start = self.options, time.time()
        if options.clean:
            cleanup()
            return
        if options.cluster:
            error("--cluster is not here: a lab is on one machine\n")
            sys.exit(1)
        controllers = options.controller or [CONTROLLERDEF]
        if options.innamespace and options.switch == SWITCHDEF:
            options.switch = "user"
        topo = buildTopo(TOPOS, options.topo)
        switch, host = customClass(SWITCHES, options.switch), customClass(HOSTS, options.host)
        controller = [customClass(CONTROLLERS, c) for c in controllers]
        if len(controller) == 1:
            controller = controller[0]
        if controller is NullController and options.switch == SWITCHDEF and options.controller:
            controller = None
        link = customClass(LINKS, options.link)
        if options.pin:
            info("*** Pinning hosts to cores\n")
        wait = options.wait or bool([t for t in options.test if t != "none"]) or None
        if options.twait is not None:
            wait = options.twait
        Net = MininetWithControlNet if options.innamespace and options.switch == "user" else Mininet
        mn = Net(topo=topo, switch=switch, host=host, controller=controller, link=link, ipBase=options.ipbase,
                 inNamespace=False, xterms=options.xterms, autoSetMacs=options.mac, autoStaticArp=options.arp,
                 autoPinCpus=options.pin, listenPort=None if options.nolistenport else options.listenport,
                 waitConnected=wait or False)
        if options.nat is not None:
            mn.addNAT(**options.nat).configDefault()
        if options.pre:
            CLI(mn, script=options.pre)
        mn.start()
        if options.test:
            runTests(mn, options)
        else:
            CLI(mn)
        if options.post:
            CLI(mn, script=options.post)
        mn.stop()
        info("completed in %0.3f seconds\n" % (time.time() - start))


def main():
    """The command mn."""
    try:
        MininetRunner()
    except KeyboardInterrupt:
        info("\n\nKeyboard Interrupt. Shutting down and cleaning up...\n\n")
        cleanup()
    except Exception:  # pylint: disable=broad-except
        kind, value, _trace = sys.exc_info()
        import traceback
        debug(traceback.format_exc())
        error("-" * 80 + "\n")
        error("Caught exception. Cleaning up...\n\n%s: %s\n" % (kind.__name__, value))
        error("-" * 80 + "\n")
        _fabric.forget()
        cleanup()


if __name__ == "__main__":
    main()
