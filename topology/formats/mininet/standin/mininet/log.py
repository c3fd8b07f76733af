"""Mininet's log levels; what is logged goes nowhere."""
import logging
import sys

OUTPUT = 25
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "output": OUTPUT, "warning": logging.WARNING, "warn": logging.WARNING,
          "error": logging.ERROR, "critical": logging.CRITICAL}
LOGLEVELDEFAULT = OUTPUT
LOGMSGFORMAT = "%(message)s"


class MininetLogger(logging.Logger):
    def __init__(self, name="mininet"):
        super().__init__(name)

    def setLogLevel(self, levelname=None):
        if levelname is not None and levelname not in LEVELS:
            raise Exception("unknown loglevel %s" % levelname)

    def output(self, msg, *args, **kwargs):
        pass

    def handle(self, entry):
        pass


lg = MininetLogger()
setLogLevel = lg.setLogLevel


def info(*args, **kwargs):
    pass


debug = output = info


def error(*args, **kwargs):
    sys.stderr.write(" ".join(map(str, args)) + "\n")


warn = warning = critical = error
