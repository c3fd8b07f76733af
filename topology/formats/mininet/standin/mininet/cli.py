"""The command line returns at once; a script given to it is reported."""
from cmd import Cmd

from mininet import _record as record
from mininet.log import info, output, error  # noqa: F401
from mininet.term import makeTerms, runX11  # noqa: F401
from mininet.util import quietRun, dumpNodeConnections, dumpPorts  # noqa: F401


class CLI(Cmd):
    prompt = "mininet> "

    def __init__(self, mininet, stdin=None, script=None, **kwargs):
        super().__init__()
        self.mn, self.locals, self.inputFile = mininet, {"net": mininet}, script
        record.not_honoured("CLI", *([script] if script else ["net"]), why="" if script else "use Trivet's own commands")

    def run(self):
        pass

    def cmdloop(self, intro=None):
        pass

    def getNodeByName(self, name):
        return self.mn[name]

    def onecmd(self, line):
        record.not_honoured("CLI.onecmd", line)
        return False
