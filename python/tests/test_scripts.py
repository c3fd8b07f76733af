"""Scripts as Mininet's users write them (scripts/): each is run, and prints and leaves what it must.

The first text of a script says what it is to be, a line for each:
  args: what it is given                   run: a command instead, in which SCRIPT is the file (default: python3 SCRIPT args)
  input: lines for its prompt, after ;     code: its exit code (default 0)
  needs: programs without which it is skipped; modules: of the kernel
  expect: a regular expression of what it prints
"""
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = sorted((HERE / "scripts").glob("*.py"))
TRIVET = os.environ.get("TRIVET") or shutil.which("trivet") or str(HERE.parents[1] / "bin" / "trivet")


class Script:
    def __init__(self, file):
        self.file, self.name = file, file.stem
        self.lab = "%s-%s" % (os.environ.get("TRIVET_LAB", "scripts-%d" % os.getpid()), self.name.replace("_", "-"))
        self.says = re.findall(r"^(\w+): (.*)$", ast.get_docstring(ast.parse(file.read_text())), re.M)

    def all(self, key):
        return [text for name, text in self.says if name == key]

    def one(self, key, default=""):
        return (self.all(key) or [default])[0]

    def lacks(self):
        """What it needs and the machine does not have."""
        programs = [p for p in self.one("needs").split() if not shutil.which(p)]
        return programs + [m for m in self.one("modules").split() if not has_module(m)]

    def run(self):
        """Run it; returns what is wrong."""
        directory = tempfile.mkdtemp()
        words = self.one("run", "python3 SCRIPT " + self.one("args")).split()
        words = [{"SCRIPT": str(self.file), "python3": sys.executable}.get(w, w) for w in words]
        if words[0] == "mn":
            words = [sys.executable, "-m", "mininet.mn", *words[1:]]
        env = {**os.environ, "PYTHONPATH": str(HERE.parent), "TRIVET": TRIVET, "TRIVET_LAB": self.lab, "PYTHONUNBUFFERED": "1"}
        begin = time.monotonic()
        try:
            done = subprocess.run(words, cwd=directory, env=env, timeout=180, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  input=self.one("input").replace("; ", "\n").encode())
            said, code = done.stdout.decode(errors="replace").replace("\r", ""), done.returncode
        except subprocess.TimeoutExpired as e:
            return ["it has not ended after %d s: %s" % (e.timeout, (e.output or b"").decode(errors="replace"))]
        finally:
            shutil.rmtree(directory)
        self.seconds = time.monotonic() - begin
        wrong = ["%r is not what it prints" % text for text in self.all("expect") if not re.search(text, said)]
        if code != int(self.one("code", "0")):
            wrong.append("its exit code is %d" % code)
        labs = json.loads(subprocess.run([TRIVET, "ls", "--json"], stdout=subprocess.PIPE, check=True).stdout) or []
        if any(lab["name"] == self.lab for lab in labs):
            wrong.append("its lab is up still")
        return wrong + [said] if wrong else []


def has_module(name):
    """Whether the kernel has a module, or can load it."""
    return subprocess.run(["modprobe", "-q", name]).returncode == 0 if shutil.which("modprobe") else Path("/sys/module", name).exists()


@unittest.skipUnless(os.geteuid() == 0, "labs take root")
class TestScripts(unittest.TestCase):
    def test_scripts(self):
        """Each script prints what it must, and leaves nothing."""
        scripts = [Script(f) for f in SCRIPTS if re.search(os.environ.get("SCRIPTS", ""), f.stem)]
        self.assertTrue(scripts)
        runnable = [s for s in scripts if not s.lacks()]
        for s in scripts:
            if s.lacks():
                print("%s is not run: this machine has no %s" % (s.name, ", ".join(s.lacks())), file=sys.stderr)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for script, wrong in zip(runnable, pool.map(Script.run, runnable)):
                with self.subTest(script.name):
                    self.assertFalse(wrong, "%s:\n%s" % (script.name, "\n".join(wrong)))
                if os.environ.get("SCRIPTS"):
                    print("%-24s %5.1f s" % (script.name, script.seconds), file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
