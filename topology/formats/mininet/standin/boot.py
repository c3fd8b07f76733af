"""First code of the confined Python: reads its job from standard input and makes the stand-in importable."""
import json
import os
import sys

if sys.version_info < (3, 9):
    document = {"error": [0, "needs Python 3.9 or later; python3 in PATH is " + sys.version.split()[0], ""]}
    os.write(3, json.dumps(document).encode())
    os._exit(0)

import importlib.abc
import importlib.util

job = json.loads(sys.stdin.buffer.read())


class Standin(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the stand-in's modules from memory, before any real package of that name."""

    def __init__(self, sources):
        self.sources = sources

    def path(self, name):
        base = name.replace(".", "/")
        return next((p for p in (base + ".py", base + "/__init__.py") if p in self.sources), None)

    def find_spec(self, name, path=None, target=None):
        found = self.path(name)
        if found:
            return importlib.util.spec_from_loader(name, self, origin="standin/" + found, is_package=found.endswith("__init__.py"))
        return None

    def is_package(self, name):
        return self.path(name).endswith("__init__.py")

    def get_source(self, name):
        return self.sources[self.path(name)]


sys.meta_path.insert(0, Standin(job["sources"]))
if job["dir"]:
    sys.path.insert(0, job["dir"])
import run

run.main(job)
