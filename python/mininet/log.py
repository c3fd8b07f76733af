"""Mininet's log: text as it is, without line ends added, on standard error."""
from __future__ import annotations

import functools
import logging
import sys
import types  # noqa: F401 (found here by programs)
from logging import Logger  # noqa: F401 (found here by programs)
from typing import Any, Callable, Optional

OUTPUT = 25  # between info and warning: what a program was asked for
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "output": OUTPUT, "warning": logging.WARNING, "warn": logging.WARNING,
          "error": logging.ERROR, "critical": logging.CRITICAL}
LOGLEVELDEFAULT = OUTPUT
LOGMSGFORMAT = "%(message)s"


class StreamHandlerNoNewline(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes messages as they are: to a stream, or to what standard error is at that time (programs redirect it)."""

    terminator = ""

    def __init__(self, stream: Any = None) -> None:
        super().__init__(stream)
        self.stream = stream

    @property
    def stream(self) -> Any:
        return self._stream or sys.stderr

    @stream.setter
    def stream(self, stream: Any) -> None:
        self._stream = stream


class Singleton(type):
    """A metaclass of classes that have one object."""

    instance: Any = None

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.instance is None:
            cls.instance = super().__call__(*args, **kwargs)
        return cls.instance


def _text(*args: Any) -> str:
    return " ".join(map(str, args))


class MininetLogger(logging.Logger):
    """A logger that stands alone, whatever a program does with logging's own. Its methods debug, info, output, warn … take any
    number of things, and join them with blanks; % stays what it is."""

    def __init__(self, name: str = "mininet") -> None:
        super().__init__(name, LOGLEVELDEFAULT)
        self.addHandler(StreamHandlerNoNewline())
        self.handlers[0].setFormatter(logging.Formatter(LOGMSGFORMAT))

    def setLogLevel(self, levelname: Optional[str] = None) -> None:
        """Show messages of a level and above, or what is shown at first."""
        try:
            self.setLevel(LOGLEVELDEFAULT if levelname is None else LEVELS[levelname])
        except KeyError:
            raise Exception("unknown log level %r: there are %s" % (levelname, ", ".join(LEVELS))) from None

    def isEnabledFor(self, level: int) -> bool:  # logging's keeps answers that only its own loggers forget
        return level >= self.level


def _method(level: int) -> Callable[..., None]:
    def log(self: MininetLogger, *args: Any, **kwargs: Any) -> None:
        if self.isEnabledFor(level):
            self._log(level, _text(*args), (), **kwargs)
    return log


for _name, _level in LEVELS.items():
    setattr(MininetLogger, _name, _method(_level))

lg: Any = MininetLogger()
debug, info, output, error, critical = lg.debug, lg.info, lg.output, lg.error, lg.critical
warn = warning = lg.warning
setLogLevel = lg.setLogLevel


def makeListCompatible(fn: Callable[[str], Any]) -> Callable[..., Any]:
    """Have a function that takes one text take any number of things."""
    @functools.wraps(fn)
    def joined(*args: Any) -> Any:
        return fn(_text(*args))
    return joined
