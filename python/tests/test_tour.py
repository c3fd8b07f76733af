"""The tour of mn in the documents, line by line, typed at a terminal."""
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

TOUR = Path(__file__).resolve().parents[2] / "docs" / "mininet-tour.md"
PROMPT = "mininet> "


def steps(text):
    """The commands of a text's console blocks, each with what it prints; and files: the blocks that begin with a name."""
    for language, block in re.findall(r"^```(console|python)\n(.*?)^```$", text, re.M | re.S):
        if language == "python":
            yield "file", re.match(r"# (\S+)\n", block).group(1), block
            continue
        for step in re.split(r"^(?=\$ |mininet> )", block, flags=re.M):
            if step:
                typed, _, printed = step.partition("\n")
                yield ("shell", typed[2:], printed) if typed.startswith("$ ") else ("prompt", typed[len(PROMPT):], printed)


class Session:
    """A command on a terminal of its own."""

    def __init__(self, command, directory):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(directory)
            os.execvp("sh", ["sh", "-c", command])
        self.pid = pid

    def type(self, text):
        os.write(self.terminal, (text + "\n").encode())

    def read(self):
        """What comes until the next prompt, or the end; and whether it is the end."""
        said, until = b"", time.monotonic() + 120
        while time.monotonic() < until:
            if not select.select([self.terminal], [], [], 1)[0]:
                continue
            try:
                more = os.read(self.terminal, 4096)
            except OSError:
                more = b""
            said += more
            text = re.sub(r"\x1b\[\?2004[hl]\r?", "", said.decode(errors="replace")).replace("\r", "")
            if not more:
                os.waitpid(self.pid, 0)
                os.close(self.terminal)
                return text, True
            if text.endswith(PROMPT):
                return text[:-len(PROMPT)], False
        raise AssertionError("nothing comes after %r" % said)


class TestTour(unittest.TestCase):
    maxDiff = None

    def agrees(self, command, said, expected):
        pattern = ".*".join(map(re.escape, expected.split("…")))
        if not re.fullmatch(pattern, said, re.S):
            self.fail("%s prints\n%s\nand the tour says\n%s" % (command, said, expected))

    @unittest.skipUnless(os.geteuid() == 0, "labs take root")
    def test_tour(self):
        """What the tour says is typed prints what the tour says."""
        if not all(map(shutil.which, ("wget", "ovs-testcontroller", "ovs-vswitchd", "iperf"))):
            self.skipTest("this machine lacks wget, iperf or Open vSwitch with its test controller")
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        session, count = None, 0
        for kind, what, text in steps(TOUR.read_text()):
            count += 1
            if kind == "file":
                Path(directory, what).write_text(text)
            elif kind == "prompt":
                session.type(what)
                said, ended = session.read()
                self.agrees(what, said.split("\n", 1)[1], text)  # the line is echoed
                session = None if ended else session
            else:
                self.assertIsNone(session, "the tour leaves a session open before " + what)
                command = re.sub(r"^sudo ((?:\w+=\S+ )*)trivet", lambda m: m.group(1) + os.environ.get("TRIVET", "trivet"), what)
                session = Session(command, directory)
                said, ended = session.read()
                self.agrees(what, said, text)
                session = None if ended else session
        self.assertGreater(count, 30)
        for _ in range(600):  # the controller has been told to end, and takes its time on a busy machine
            if not subprocess.run(["pgrep", "-F", "/tmp/trivet-tour.pid"], capture_output=True).stdout:
                return
            time.sleep(0.1)
        self.fail("the controller of the tour does not end")


if __name__ == "__main__":
    unittest.main()
