"""Where the program trivet is, and running it."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from ._errors import TrivetError


def find() -> str:
    """The program: what TRIVET names, that of the environment or checkout that the package is in, or that in PATH."""
    packages = Path(__file__).resolve().parent.parent
    above = packages.parent.parent  # of lib/python3.X/site-packages
    environment = above.parent if above.name in ("lib", "lib64") else packages  # as pip install --target has it
    for file in os.environ.get("TRIVET", ""), str(environment / "bin" / "trivet"), str(packages.parent / "bin" / "trivet"):
        if file and os.access(file, os.X_OK) and os.path.isfile(file):
            return file
    in_path = shutil.which("trivet")
    if in_path:
        return in_path
    raise TrivetError("the program trivet is not found: it is not in the package and not in PATH; "
                      "install it, or name it:  export TRIVET=/path/to/trivet")


def run(args: Sequence[str], root: bool = False, ok: Sequence[int] = (0,), env: Optional[Dict[str, str]] = None,
        input: Optional[bytes] = None) -> "subprocess.CompletedProcess[str]":
    """Run trivet with args, by sudo where it takes root and this is not; the error has the program's text."""
    command: List[str] = [find(), *args]
    if root and os.geteuid() != 0:
        if not shutil.which("sudo"):
            raise TrivetError("trivet %s needs root, and there is no sudo" % args[0])
        command = ["sudo", *command]
    sys.stdout.flush()
    done = subprocess.run(command, input=input, stdin=None if input is not None or root else subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    result = subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(errors="replace"),
                                         done.stderr.decode(errors="replace"))
    if done.returncode not in ok:
        text = result.stderr.strip() or result.stdout.strip()
        raise TrivetError(text or "trivet %s ended with exit code %d" % (" ".join(args), done.returncode))
    return result
