"""Terminals are not opened."""
from mininet import _record as record


def makeTerm(node, title="Node", term="xterm", display=None, cmd="bash"):
    record.not_honoured("makeTerm", str(node))
    return []


def makeTerms(nodes, title="Node", term="xterm"):
    record.not_honoured("makeTerms", [str(n) for n in nodes])
    return []


def runX11(node, cmd):
    record.not_honoured("runX11", str(node), cmd)
    return []


def tunnelX11(node, display=None):
    return None, None


def cleanUpScreens():
    pass
