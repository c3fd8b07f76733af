"""Stands in for modules that are not installed, so that a network can be read which does not need them.

What comes from such a module does nothing, and may be printed, passed on, called
or be a base class. A value of the network, or a decision, may not come from it.
"""
import ast
import builtins
import json
import linecache
import re
import sys
import types

from _python2 import MODULES
from mininet import _record as record

# Their networks are not Mininet's: nothing could be read of them.
REFUSED = {"mininet": "Trivet's stand-in for Mininet 2.3 has no such module", "mn_wifi": "networks of Mininet-WiFi are not read; Trivet has no radio"}
REFUSED.update({name: "only networks of Mininet itself are read" for name in (
    "containernet", "comnetsemu", "fogbed", "ipmininet", "mininext", "minindn", "p4utils", "maxinet", "MaxiNet")})

MARK = re.compile(r"<missing ([\w.]+)>")
names = []  # of modules that were stood in for


class Needed(BaseException):
    """The network needs what is not there; no "except Exception" of the program may hide that."""

    def __init__(self, path):
        super().__init__("what the network needs here comes from %s, and there is no module %s" % (path, path.split(".")[0]))


def hint():
    return "install %s for python3, or put it beside the file" % ", ".join(names) if names else ""


class Nothing:
    def __init__(self, path=None, *_args, **_options):  # also called as Missing.__init__(self)
        self.__dict__.setdefault("_path", path)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(self._path + "." + name)

    def __call__(self, *args, **options):
        if len(args) == 1 and not options and isinstance(args[0], (types.FunctionType, type)):
            return args[0]  # a decorator
        return self

    def __mro_entries__(self, _bases):
        return (Base,)

    def __str__(self):
        return "<missing %s>" % self._path

    __repr__ = __str__

    def __format__(self, _spec):
        return str(self)

    def __add__(self, other):
        return str(self) + other if isinstance(other, str) else self._needed()

    def __radd__(self, other):
        return other + str(self) if isinstance(other, str) else self._needed()

    def __getitem__(self, _key):
        return self

    def __setitem__(self, _key, _value):
        pass

    def __delitem__(self, _key):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    __hash__ = object.__hash__

    def _needed(self, *_):
        raise Needed(self._path)


for _name in ("bool len iter next int float index complex contains eq ne lt le gt ge neg pos abs invert round sub rsub mul rmul truediv "
              "rtruediv floordiv rfloordiv mod rmod divmod pow rpow and rand or ror xor rxor lshift rshift matmul").split():
    setattr(Nothing, "__%s__" % _name, Nothing._needed)


class Base:
    """What a class of the program is of whose base is missing."""

    def __init__(self, *_args, **_options):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(type(self).__name__ + "." + name)


class Module(types.ModuleType):
    __all__, __path__ = [], []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(self.__name__ + "." + name)


def install(directory):
    real = builtins.__import__

    def own(variables):
        """Whether an import is the program's: its file's, or of a module beside it."""
        file = (variables or {}).get("__file__") or ""
        return file == record.SCRIPT or bool(directory) and file.startswith(directory.rstrip("/") + "/")

    def importing(name, variables=None, local=None, fromlist=(), level=0):
        try:
            return real(name, variables, local, fromlist, level)
        except Exception as error:
            if level or not own(variables) or not absent(name, error, directory) or expected(sys._getframe(1)):
                raise
            stand_in(name, error)
            return real(name, variables, local, fromlist, level)

    builtins.__import__ = importing


def absent(name, error, directory):
    """Whether the module is not there, or is one of others that does not work here."""
    top = name.split(".")[0]
    if top in REFUSED or top in MODULES:
        return False
    if isinstance(error, ModuleNotFoundError) and error.name and (name + ".").startswith(error.name + "."):
        return True
    spec = next(filter(None, (f.find_spec(top, None) for f in sys.meta_path)), None)
    origin = spec and spec.origin or ""
    return "site-packages" in origin or "dist-packages" in origin


def expected(frame):
    """Whether the program itself goes on without the module: try: import x; except ImportError: …"""
    file = frame.f_code.co_filename
    try:
        tree = ast.parse(record.sources.get(file) or "".join(linecache.getlines(file)))
    except SyntaxError:
        return False
    tries = [n for n in ast.walk(tree) if isinstance(n, ast.Try) and n.body[0].lineno <= frame.f_lineno <= n.body[-1].end_lineno]
    return any(catches(h) and not ends(h) for t in tries for h in t.handlers)


def catches(handler):
    wanted = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
    return handler.type is None or any(isinstance(n, ast.Name) and n.id in wanted for n in ast.walk(handler.type))


def ends(handler):
    """Whether it only says that the module is missing."""
    calls = [n.func for n in ast.walk(handler) if isinstance(n, ast.Call)]
    return any(isinstance(n, ast.Raise) for n in ast.walk(handler)) or any(
        getattr(f, "attr", getattr(f, "id", "")) in ("exit", "_exit", "quit") for f in calls)


def stand_in(name, error):
    top = name.split(".")[0]
    why = "is not installed" if isinstance(error, ModuleNotFoundError) else "does not work here (%s)" % str(error)[:80]
    if top not in names:
        names.append(top)
        record.warn(record.here(), "%s %s: replaced by a stand-in that does nothing" % (top, why))
    if not isinstance(error, ModuleNotFoundError):  # what of it could be loaded is of no use
        for path in [p for p in sys.modules if (p + ".").startswith(top + ".")]:
            del sys.modules[path]
    parent, path = None, ""
    for part in name.split("."):
        path = (path + "." + part).lstrip(".")
        sys.modules.setdefault(path, Module(path))
        if parent is not None:
            setattr(parent, part, sys.modules[path])
        parent = sys.modules[path]


def check(document):
    """A network may hold nothing that comes from a stand-in. Returns [line, message] of the first that does."""
    for entry in [*document["nodes"], *document["links"], document]:
        found = MARK.search(json.dumps(entry, default=str))
        if found:
            line = entry.get("line", 0) if entry is not document else 0
            return line, str(Needed(found[1]))
    return None
