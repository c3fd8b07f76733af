"""What goes wrong, in the words of the program that found it."""
from __future__ import annotations

from typing import List, Optional, Union


class TrivetError(Exception):
    """Trivet says no; the text is what the command would have printed."""


class NoLab(TrivetError):
    """There is no such lab, or it does not answer."""


class CommandError(TrivetError):
    """A program in a node has ended with another exit code than 0."""

    def __init__(self, node: str, command: List[str], returncode: int, stdout: Optional[Union[str, bytes]] = None,
                 stderr: Optional[Union[str, bytes]] = None) -> None:
        self.node, self.command, self.returncode = node, command, returncode
        self.stdout, self.stderr = stdout, stderr
        said = stderr.decode(errors="replace") if isinstance(stderr, bytes) else stderr or ""
        text = "%s: %s ended with exit code %d" % (node, " ".join(command), returncode)
        super().__init__(text + (":\n" + said.strip() if said.strip() else ""))
