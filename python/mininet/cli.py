"""The prompt: mininet>."""
import atexit
import errno  # noqa: F401 (found here by programs)
import os
import select
import selectors
import subprocess
import sys
import time
from cmd import Cmd
from contextlib import suppress
from os import isatty  # noqa: F401 (found here by programs)
from select import POLLIN, poll  # noqa: F401 (found here by programs)
from subprocess import call  # noqa: F401 (found here by programs)

from mininet.log import LEVELS, error, info, lg, output
from mininet.term import makeTerms, runX11
from mininet.util import dumpNodeConnections, dumpPorts, quietRun  # noqa: F401 (found here by programs)


class CLI(Cmd):
    """A prompt for a network. It runs when it is made; commands are its methods do_xxx."""

    prompt = "mininet> "

    def __init__(self, mininet, stdin=sys.stdin, script=None, **kwargs):
        super().__init__(stdin=stdin, **kwargs)
        self.stdin, self.inputFile = stdin, script
        self.mn, self.locals = mininet, dict(net=mininet)
        self.inPoller = select.poll()
        self.inPoller.register(self.stdin)
        info("*** Starting CLI:\n")
        fabric = getattr(mininet, "fabric", None)
        if fabric is not None and fabric.nodes:
            fabric.ensure()
        if script:
            self.do_source(script)
        else:
            if not CLI.readlineInited:
                self.initReadline()
            self.run()

    readlineInited = False

    @staticmethod
    def initReadline():
        """History and completion, where input is a terminal."""
        CLI.readlineInited = True
        try:
            import readline
        except ImportError:
            return
        history = os.path.expanduser("~/.mininet_history")
        if os.path.isfile(history):
            try:
                readline.read_history_file(history)
                readline.set_history_length(1000)
            except OSError:
                pass

        def save():
            try:
                readline.write_history_file(history)
            except OSError:
                pass
        atexit.register(save)

    def run(self):
        """Read commands until exit or the end of input. Ctrl-C ends what nodes run, not the prompt."""
        ended = False
        while not ended:
            try:
                self._interruptNodes()
                self._stty("echo sane intr ^C")
                self.cmdloop()
                ended = True
            except KeyboardInterrupt:
                with suppress(KeyboardInterrupt):
                    output("\nInterrupt\n")

    def _interruptNodes(self):
        """End the commands that nodes run still."""
        for node in filter(lambda node: node.waiting, self.mn.values()):
            info("*** %s: interrupted\n" % node)
            node.sendInt()
            node.waitOutput()

    def _stty(self, settings):
        """Set the terminal, if input is one."""
        if self.isatty():
            quietRun("stty " + settings)

    def emptyline(self):
        """Nothing is done."""

    def getLocals(self):
        """The names that py and px know."""
        return self.locals.update(self.mn) or self.locals

    helpStr = """A node's name with a command behind it runs that there:
  mininet> h1 ip addr
Names of nodes among its words become their addresses:
  mininet> h2 ping h3
Full-screen programs want noecho before them, or a terminal of their own:
  mininet> noecho h2 vi notes.txt
  mininet> xterm h2

"""

    def do_help(self, line):
        """help [command]: what there is, or what a command does"""
        super().do_help(line)
        output("" if line else self.helpStr)

    def do_ports(self, _line):
        """ports: each switch's ports by number"""
        dumpPorts(self.mn.switches)

    # Commands with arguments

    def _args(self, line, usage, *counts):
        """The words of a line; None, after an error with the usage, unless there is such a number of them. Without counts any is
        right but none."""
        words = line.split()
        if len(words) in counts or words and not counts:
            return words
        error("usage: %s\n" % usage)
        return None

    def _nodes(self, names):
        """The nodes of names, with an error for each name that there is none of."""
        for name in names:
            if name not in self.mn:
                error("node '%s' not in network\n" % name)
        return [self.mn[name] for name in names if name in self.mn]

    def _between(self, names, **options):
        """iperf between two hosts, or those it takes by itself."""
        hosts = self._nodes(names)
        if len(hosts) == len(names):
            self.mn.iperf(hosts or None, **options)

    def do_sh(self, line):
        """sh command: run a command of the machine's shell"""
        self.mn.fabric.tell()
        subprocess.call(line, shell=True)

    def _python(self, code, mode):
        """Run Python code, and show the error that comes of it."""
        try:
            return eval(compile(code.strip(), "<%s>" % self.prompt.strip(), mode), globals(), self.getLocals())
        except Exception as e:
            output("%s\n" % e)
            return None

    def do_py(self, line):
        """py expression: show its value; nodes are known by their names, the network is net"""
        value = self._python(line, "eval")
        if value:
            output("%s\n" % (value if isinstance(value, str) else repr(value)))

    def do_px(self, line):
        """px statement: do it; nodes are known by their names, the network is net"""
        self._python(line, "exec")

    def do_iperf(self, line):
        """iperf [host host]: measure the throughput of TCP"""
        hosts = self._args(line, "iperf [host host]", 0, 2)
        if hosts is not None:
            self._between(hosts)

    def do_iperfudp(self, line):
        """iperfudp [rate host host]: measure the throughput of UDP sent at a rate like 10M"""
        words = self._args(line, "iperfudp [rate host host], with a rate like 10M", 0, 3)
        if words is not None:
            self._between(words[1:], l4Type="UDP", **({"udpBw": words[0]} if words else {}))

    def do_link(self, line):
        """link node node up|down: plug the cables between two nodes in or out"""
        words = self._args(line, "link node node up|down", 3)
        if words and words[2] not in ("up", "down"):
            error("a link goes up or down, not %s\n" % words[2])
        elif words:
            self.mn.configLinkStatus(*words)

    def do_xterm(self, line, term="xterm"):
        """xterm node...: a terminal in each of the nodes"""
        for node in self._nodes(self._args(line, term + " node...") or []):
            self.mn.terms += makeTerms([node], term=term)

    def do_gterm(self, line):
        """gterm node...: GNOME's terminal in each of the nodes"""
        self.do_xterm(line, term="gterm")

    def do_x(self, line):
        """x node [command]: run a program with windows in a node, xterm unless another is said"""
        name, *command = self._args(line, "x node [command]") or [None]
        for node in self._nodes([name] if name else []):
            self.mn.terms += runX11(node, command or ["xterm"])

    # The end

    def do_exit(self, _line):
        """exit: leave the prompt"""
        return "exited by user command"

    def do_quit(self, line):
        """quit: leave the prompt"""
        return self.do_exit(line)

    def do_EOF(self, line):
        """Ctrl-D: leave the prompt"""
        output("\n")
        return self.do_exit(line)

    def isatty(self):
        """Whether commands come from a terminal."""
        try:
            return os.isatty(self.stdin.fileno())
        except (OSError, ValueError):
            return False

    def do_noecho(self, line):
        """noecho node command: run a command that shows itself what is typed"""
        self._stty("-echo")
        self.default(line)
        self._stty("echo")

    def do_source(self, line):
        """source file: do the commands of a file"""
        names = self._args(line, "source file")
        if not names:
            return
        shown = lg.isEnabledFor(LEVELS["info"])
        try:
            with open(names[0]) as self.inputFile:
                for command in map(str.strip, self.inputFile):
                    if command and shown:
                        output("%s%s\n" % (self.prompt, command))
                    if self.onecmd(self.precmd(command)):
                        break
        except OSError as e:
            error("%s: %s\n" % (names[0], e.strerror))
        self.inputFile = None

    def do_dpctl(self, line):
        """dpctl command...: run ovs-ofctl's command on each switch"""
        words = self._args(line, "dpctl command...")
        for switch in self.mn.switches if words else []:
            output("*** %s %s\n" % (switch.name, 72 * "-"))
            output(switch.dpctl(*words))

    def do_time(self, line):
        """time command: how long a command takes"""
        begin = time.monotonic()
        self.onecmd(line)
        self.stdout.flush()
        output("*** Elapsed time: %0.6f secs\n" % (time.monotonic() - begin))

    def do_switch(self, line):
        """switch name start|stop: let a switch forward, or stop"""
        words = self._args(line, "switch name start|stop", 2)
        if not words:
            return
        switch = self.mn[words[0]] if words[0] in self.mn else None
        if switch not in self.mn.switches:
            error("%s is no switch\n" % words[0])
        elif words[1] == "stop":
            switch.stop(deleteIntfs=False)
        elif words[1] == "start":
            switch.start(self.mn.controllers)
        else:
            error("a switch can start or stop, not %s\n" % words[1])

    def default(self, line):
        """A node's name and a command: run it there, with node names replaced by addresses."""
        name, command, line = self.parseline(line)
        if name not in self.mn:
            error("*** Unknown command: %s\n" % line)
        elif not command:
            error("*** Please enter a command for node: %s <cmd>\n" % name)
        else:
            self.mn[name].sendCmd(" ".join(map(self._address, command.split(" "))))
            self.waitForNode(self.mn[name])

    def _address(self, word):
        if word not in self.mn:
            return word
        intf = self.mn[word].defaultIntf()
        if intf is None or intf.node.isForwarder():
            return self.mn[word].IP() or word
        return intf.updateIP() or word

    def waitForNode(self, node):
        """Show what a node's command prints until it ends; what is typed and Ctrl-C go to the command."""
        with selectors.DefaultSelector() as inputs:
            def forward():
                typed = os.read(self.stdin.fileno(), 1) if node.waiting else None
                if typed:
                    os.write(node.stdin.fileno(), typed)
                elif typed == b"":
                    inputs.unregister(self.stdin)
            inputs.register(node.stdout, selectors.EVENT_READ, lambda: output(node.monitor(timeoutms=0)))
            if self.isatty():
                inputs.register(self.stdin, selectors.EVENT_READ, forward)
            while node.waiting:
                try:
                    for ready, _events in inputs.select():
                        ready.data()
                except KeyboardInterrupt:
                    node.sendInt()

    def precmd(self, line):
        """Without comments."""
        return line.partition("#")[0]

    def completenames(self, text, *ignored):
        return super().completenames(text, *ignored) + [n for n in self.mn if n.startswith(text)]

    def completedefault(self, text, *_ignored):
        return [n for n in self.mn if n.startswith(text)]


# Commands without arguments: those that ask the network for something, and those that show a part of it.

def _asks(method, text, *names):
    def command(self, line):
        getattr(self.mn, method)(*([line] if names else []))
    command.__doc__ = text
    return command


def _shows(lines, text):
    def command(self, _line):
        for line in lines(self.mn):
            output(line + "\n")
    command.__doc__ = text
    return command


def _cables(net):
    """Each node with its interfaces, and what is at the other ends of their links."""
    def ends(intf):
        link = intf.link
        return " %s:%s" % (intf, (link.intf2 if link.intf1 is intf else link.intf1) if link else " ")
    return (node.name + "".join(map(ends, node.intfList())) for node in net.values())


_COMMANDS = {
    "nodes": _shows(lambda net: ["available nodes are: ", " ".join(sorted(net))], "nodes: the names of all nodes"),
    "net": _shows(_cables, "net: what is linked to what"),
    "intfs": _shows(lambda net: ("%s: %s" % (n.name, ",".join(n.intfNames())) for n in net.values()),
                    "intfs: each node's interfaces"),
    "dump": _shows(lambda net: map(repr, net.values()), "dump: each node with its addresses and its shell's number"),
    "links": _shows(lambda net: ("%s %s " % (link, link.status()) for link in net.links),
                    "links: whether both ends of each link are there"),
    "pingall": _asks("pingAll", "pingall [seconds]: does each host reach each other?", "timeout"),
    "pingpair": _asks("pingPair", "pingpair: do the first two hosts reach each other?"),
    "pingallfull": _asks("pingAllFull", "pingallfull: as pingall, with round-trip times"),
    "pingpairfull": _asks("pingPairFull", "pingpairfull: as pingpair, with round-trip times"),
    "wait": _asks("waitConnected", "wait: until each switch is connected to a controller"),
}
for _name, _command in _COMMANDS.items():
    setattr(CLI, "do_" + _name, _command)


def isReadable(poller):
    """Whether a poller's file can be read now."""
    return any(mask & select.POLLIN for _fd, mask in poller.poll(0))


