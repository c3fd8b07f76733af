"""Runs the user's program and writes the one network it makes, as JSON, to file descriptor 3."""
import inspect
import json
import os
import pwd
import signal
import sys
import threading
import traceback
import types
from time import monotonic, process_time

import _absent
import _python2
from mininet import _record as record, _patch
from mininet.link import TCLink
from mininet.net import Mininet
from mininet.snapshot import snapshot
from mininet.topo import Topo

THREADS = 1  # of waiting, for all threads that there still are when the program has come to its end
SECONDS = 3  # of processor time, or of waiting; what the program has built by then is taken

WANTS_ARGUMENTS = "does it want arguments? Give them after the file's name"


class Tail:
    """Standard error: its last line tells why a program ended."""
    encoding, errors = "utf-8", "replace"

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text = (self.text + text)[-4096:]
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return False

    def last(self):
        lines = self.text.strip().splitlines()
        return lines[-1] + "; " if lines else ""


said = Tail()


class Stop(Exception):
    """Ends the reading with an error for the user."""

    def __init__(self, message, hint="", line=0):
        super().__init__(message)
        self.message, self.hint, self.line = message, hint, line


def finish(document):
    """Writes the document and ends the process, whatever threads there still are."""
    document["warnings"] = record.warnings
    document["dropped"] = record.dropped
    data = json.dumps(document).encode()
    try:
        while data:
            data = data[os.write(RESULT, data):]
    finally:
        os._exit(0)


def fail(message, hint="", line=0, python2=False):
    """Ends with an error; python2: the file may be Python 2, and is to be read again as such."""
    finish({"error": [line, message, hint], "python2": python2})


def out_of_time(_signal, frame):
    line = record.line_of(frame)
    net = chosen()
    if net is None:
        fail("the program did not end within %d s" % (SECONDS * max(1, looks)), "a loop without end? A topology file has to make its network and return", line)
    record.warn(line, "the program was stopped here after %d s; what it does later is not read" % (SECONDS * max(1, looks)))
    finish(snapshot(net))


used = 0.0  # processor time at the last look
looks = 0


def look(signal_, frame):
    """Ends a program that waits for what does not come; one that a busy machine did not let run goes on for a while."""
    global used, looks
    before, used, looks = used, process_time(), looks + 1
    started = chosen() is not None and chosen().started
    if used - before < 0.001 or looks >= (3 if started else 8):
        out_of_time(signal_, frame)


def hint_for(error):
    if isinstance(error, SyntaxError) and job["python2"]:
        return "it is neither Python 3, nor Python 2 that %s can convert" % _python2.converter()
    if _python2.suspected(error) and not job["python2"] and _python2.converter() is None:
        return "if this is Python 2: install python3-lib2to3 or python3-fissix (apt), or fissix (pip), to have it read"
    if isinstance(error, IndexError) and "argv" in source_of(error):
        return WANTS_ARGUMENTS
    top = error.name.split(".")[0] if isinstance(error, ImportError) and error.name else ""
    if top in _absent.REFUSED:
        return _absent.REFUSED[top]
    if isinstance(error, ImportError):
        return "install the module for %s, or take the import out" % (sys.executable or "python3")
    if isinstance(error, MemoryError):
        return "a topology file may use 1 GiB"
    if isinstance(error, PermissionError) and beside(error.filename):
        if not os.access(job["dir"], os.X_OK):
            return "the file is read as user %s, to whom %s is closed: put it and what it reads into a directory of their own" % (USER, job["dir"])
        return "the file is read as user %s: chmod a+r %s" % (USER, os.path.basename(error.filename))
    if isinstance(error, OSError) and (isinstance(error, PermissionError) or type(error).__name__ == "gaierror"):
        return "a topology file may read what is beside it; it can start no program and use no network"
    return _absent.hint()


def beside(path):
    """Whether a program may read that, if its user may."""
    if not isinstance(path, str):
        return False
    path = os.path.relpath(path, job["dir"])
    return not any(part.startswith(".") for part in path.split(os.sep))


def user():
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


USER = user()  # the program is told that it is root


def line_of(error):
    """The last line of the user's file that the error came through."""
    if isinstance(error, SyntaxError) and error.filename == record.SCRIPT:
        return error.lineno or 0
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == record.SCRIPT]
    return lines[-1] if lines else 0


def source_of(error):
    """That line's text."""
    lines = job["text"].splitlines()
    return lines[line_of(error) - 1] if 0 < line_of(error) <= len(lines) else ""


def may_be_python2(error):
    return not job["python2"] and _python2.suspected(error) and _python2.converter() is not None


def describe(error):
    if isinstance(error, SyntaxError):
        where = "" if error.filename == record.SCRIPT else " (%s:%s)" % (error.filename, error.lineno)
        return "%s: %s%s" % (type(error).__name__, error.msg, where)
    if isinstance(error, _absent.Needed):
        return str(error)
    try:
        text = str(error)
    except BaseException:  # of an exception of the program's own
        text = ""
    return ("%s: %s" % (type(error).__name__, text)).removesuffix(": ")


def execute(job, name):
    """Runs the file as a module of that name and returns its variables."""
    module = types.ModuleType(name)
    module.__file__ = record.SCRIPT
    sys.modules[name] = module
    exec(job["code"], module.__dict__)
    return vars(module)


def run_program(job):
    """Runs the file as Python would; an error after the network was started is only a warning."""
    try:
        return execute(job, "__main__")
    except KeyboardInterrupt:
        pass
    except SystemExit as end:
        if not record.networks and end.code not in (None, 0):
            raise Stop("the program ended with %r before it made a network" % (end.code,), said.last() + WANTS_ARGUMENTS)
    except BaseException as error:
        if chosen() is None or not chosen().started or isinstance(error, (NameError, ImportError)) and may_be_python2(error):
            raise
        record.warn(line_of(error), "%s; what the program does from here is not read" % describe(error))
    return vars(sys.modules["__main__"])


def chosen():
    """The network to take: the first that was started, else built, else made."""
    for test in (lambda n: n.started, lambda n: n.built, lambda n: n.nameToNode):
        for net in record.networks:
            if test(net):
                return net
    return None


def number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def topos_of(variables):
    """The file's dictionary of topologies."""
    topos = variables.get("topos") or {}
    if not isinstance(topos, dict):
        raise Stop("topos is %s, not a dictionary" % type(topos).__name__, "write topos = {'name': Class}")
    return dict(topos)


def by_name(variables, wanted):
    """The topology of the topos dictionary that "name,1,k=2" names."""
    topos = topos_of(variables)
    name, *rest = wanted.split(",")
    if name not in topos:
        known = ", ".join(sorted(map(str, topos))) or "none: it has no topos = {…}"
        raise Stop("there is no topology %r in the file" % name, "there are " + known if topos else "there are " + known)
    args = [number(a) for a in rest if "=" not in a]
    options = {k: number(v) for k, v in (a.split("=", 1) for a in rest if "=" in a)}
    return topos[name](*args, **options)


def only_one(variables):
    """The single topology of a file that starts no network itself."""
    topos = topos_of(variables)
    if not topos:
        topos = {k: v for k, v in variables.items() if inspect.isclass(v) and issubclass(v, Topo) and v.__module__ == "__main__"}
        bases = {b for v in topos.values() for b in v.__mro__[1:]}
        topos = {k: v for k, v in topos.items() if v not in bases}
    if not topos:
        raise Stop("the program makes no network", "it has to make a Mininet(…), or define topos = {'name': …}")
    if len(topos) > 1:
        raise Stop("the file holds several topologies: " + ", ".join(sorted(map(str, topos))), "say which with --topo NAME")
    (name, make), = topos.items()
    try:
        return make()
    except TypeError as error:
        if line_of(error):
            raise
        raise Stop("topology %s: %s" % (name, error), "give its arguments: --topo %s,ARGUMENT,…" % name)


def read(job):
    if job["topo"]:
        topo = by_name(execute(job, "custom"), job["topo"])
    else:
        variables = run_program(job)
        end = monotonic() + THREADS
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join(max(0, end - monotonic()))
        topo = only_one(variables) if chosen() is None else None
    if topo is not None:
        if not isinstance(topo, Topo):
            raise Stop("what topos makes is %s, not a Topo" % type(topo).__name__, "write topos = {'name': Class}, with class Class(Topo)")
        record.networks[:] = []
        Mininet(topo=topo, link=TCLink)  # which links there are is left to mn --link: what the topology says of them holds
    if chosen() is None:
        raise Stop("the program makes no network", "it has to make a Mininet(…) with nodes")
    if len(record.networks) > 1:
        record.warn(chosen().line, "the program makes %d networks; this one is taken" % len(record.networks))
    return snapshot(chosen())


def main(the_job):
    global RESULT, job
    job = the_job
    RESULT = os.dup(3)
    os.close(3)
    record.SCRIPT = job["file"]
    record.sources[record.SCRIPT] = job["text"]
    sys.argv = [job["file"], *job["args"]]
    sys.stderr = said
    _patch.install()
    _absent.install(job["dir"])
    try:
        if job["python2"]:
            _python2.install(job["dir"])
        job["code"] = (_python2.compiled if job["python2"] else compile_as_is)(job["text"], record.SCRIPT)
        limit_time()
        document = read(job)
        foreign = _absent.check(document)
        if foreign:
            fail(foreign[1], _absent.hint(), foreign[0])
        finish(document)
    except Stop as stop:
        fail(stop.message, "; ".join(filter(None, [stop.hint, _absent.hint()])), stop.line)
    except BaseException as error:
        fail(describe(error), hint_for(error), line_of(error), may_be_python2(error))


def compile_as_is(text, filename):
    return compile(text, filename, "exec", dont_inherit=True)


def limit_time():
    global used
    signal.signal(signal.SIGPROF, out_of_time)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    used = process_time()
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
