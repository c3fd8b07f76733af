"""Replaces what would reach out of the program: other programs, files it writes, time, input.

The system confines the process in any case; this is so that a program that
starts tcpdump or keeps a log can be read all the same, and the user learns of it.
"""
import builtins
import io
import os
import shutil
import signal
import subprocess
import time

from mininet import _record as record
from mininet._commands import run_outside

DAY = 86400
TEXT = False  # whether what a program says is text unless it asks for bytes, as in Python 2
SLEEPS = 20000


def as_text(options):
    return bool(TEXT or options.get("text") or options.get("universal_newlines") or options.get("encoding"))


class NoProcess:
    """A process that ended at once, without a word."""

    def __init__(self, *_args, **options):
        self.text = as_text(options)
        empty = io.StringIO if self.text else io.BytesIO
        self.stdin, self.stdout, self.stderr = empty(), empty(), empty()
        self.pid, self.returncode, self.args = 1, 0, ""

    def communicate(self, input=None, timeout=None):
        return ("", "") if self.text else (b"", b"")

    def poll(self):
        return 0

    def wait(self, timeout=None):
        return 0

    def kill(self, *_args):
        pass

    terminate = send_signal = kill

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def reported(name, answer, patched=run_outside):
    def call(*args, **options):
        patched(name, args[0] if args else options.get("args", ""))
        return answer(*args, **options) if callable(answer) else answer
    return call


class Popen(NoProcess):
    def __init__(self, args, *more, **options):
        run_outside("subprocess.Popen", args)
        super().__init__(**options)


def output(*_args, **options):
    return "" if as_text(options) else b""


def completed(args, **options):
    return subprocess.CompletedProcess(args, 0, output(**options), output(**options))


def no_effect(name):
    def call(*args, **_options):
        record.not_honoured(name, *args)
    return call


def opens(real):
    def open(file, mode="r", *args, **options):
        if not set("wax+") & set(mode) or file == os.devnull:
            return real(file, mode, *args, **options)
        record.not_honoured("open", str(file), mode)
        return io.BytesIO() if "b" in mode else io.StringIO()
    return open


class Clock:
    """Time that sleeping moves on at once; after a day of it, or very many sleeps, comes Ctrl-C."""

    def __init__(self):
        self.slept, self.sleeps = 0.0, 0

    def sleep(self, seconds):
        self.slept += max(0.0, float(seconds))
        self.sleeps += 1
        if self.slept > DAY or self.sleeps > SLEEPS:
            raise KeyboardInterrupt

    def ahead(self, real):
        return lambda: real() + self.slept


def pause():
    raise KeyboardInterrupt


def ask(questions=iter(range(100))):
    def input(prompt=""):
        if next(questions, None) is None:
            raise EOFError("the program asks again and again; there is nobody to answer")
        record.not_honoured("input", str(prompt))
        return ""
    return input


def install():
    clock = Clock()
    time.sleep = clock.sleep
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, clock.ahead(getattr(time, name)))
    signal.pause = pause
    builtins.input = ask()
    builtins.open = io.open = opens(builtins.open)
    for name in ("getuid", "geteuid"):  # Mininet's programs ask for root, and do not need it here
        setattr(os, name, lambda: 0)
    os.system = reported("os.system", 0)
    os.popen = reported("os.popen", lambda *_a, **_o: io.StringIO())
    subprocess.Popen = Popen
    subprocess.call = reported("subprocess.call", 0)
    subprocess.check_call = reported("subprocess.check_call", 0)
    subprocess.check_output = reported("subprocess.check_output", output)
    subprocess.run = reported("subprocess.run", completed)
    subprocess.getoutput = reported("subprocess.getoutput", "")
    subprocess.getstatusoutput = reported("subprocess.getstatusoutput", (0, ""))
    for module, names in ((os, ("mkdir", "makedirs", "remove", "unlink", "rename", "replace", "rmdir", "chmod", "chown", "kill",
                                "killpg", "symlink", "truncate")), (shutil, ("rmtree", "copy", "copyfile", "copytree", "move"))):
        for name in names:
            setattr(module, name, no_effect(module.__name__ + "." + name))
