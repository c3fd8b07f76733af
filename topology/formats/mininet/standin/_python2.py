"""Reads Python 2: the syntax by lib2to3 or fissix, the rest by what Python 2 had and Python 3 has not."""
import ast
import builtins
import functools
import importlib.machinery
import importlib.util
import os
import sys
import warnings

from mininet import _patch, _record as record

# Only those that keep the lines where they are, so that messages name the file's own.
FIXERS = ("basestring", "dict", "except", "exec", "filter", "funcattrs", "getcwdu", "has_key", "imports", "imports2", "itertools",
          "long", "map", "metaclass", "methodattrs", "ne", "next", "nonzero", "numliterals", "paren", "print", "raise", "raw_input",
          "repr", "standarderror", "throw", "types", "unicode", "urllib", "xrange", "zip")

# What Python 3 says about Python 2.
SIGNS = ("Missing parentheses in call to", "multiple exception types must be parenthesized", "leading zeros in decimal",
         "inconsistent use of tabs", "invalid decimal literal", "invalid hexadecimal literal",
         "unindent does not match any outer indentation level", "name 'raw_input'", "name 'xrange'", "name 'unicode'", "name 'unichr'",
         "name 'reduce'", "name 'long'", "name 'basestring'", "name 'file'", "name 'execfile'", "name 'cmp'",
         "has no attribute 'has_key'", "has no attribute 'iteritems'", "has no attribute 'itervalues'", "has no attribute 'iterkeys'",
         "'float' object cannot be interpreted as an integer", "'dict_keys' object", "'dict_values' object", "'dict_items' object",
         "'map' object is not", "object of type 'map' has no len", "'filter' object is not", "object of type 'filter' has no len",
         "'range' object has no attribute", "'range' object does not support", "for +: 'range' and 'list'")
SYNTAX = ("invalid syntax", "expected ':'", "cannot assign to", "positional patterns", "Did you mean print")
MODULES = ("commands", "urllib2", "urlparse", "ConfigParser", "Queue", "cPickle", "StringIO", "cStringIO", "Tkinter", "SocketServer",
           "httplib", "thread", "__builtin__", "xmlrpclib", "SimpleHTTPServer", "BaseHTTPServer", "tkMessageBox", "tkFileDialog",
           "tkFont", "HTMLParser", "cookielib", "Cookie", "sets")


def suspected(error):
    """Whether an error may be one of Python 2 that is read as Python 3."""
    if isinstance(error, SyntaxError):
        return any(s in str(error) for s in SIGNS + SYNTAX)
    if isinstance(error, ImportError):
        return error.name in MODULES
    return isinstance(error, (NameError, AttributeError, TypeError)) and any(s in str(error) for s in SIGNS)


def converter():
    """The library that converts; None if none is installed."""
    return next((p for p in ("lib2to3", "fissix") if importlib.util.find_spec(p)), None)


def convert(text):
    """The text as Python 3. Its lines stay where they are."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for i, line in enumerate(lines):  # a tab goes on to the next column divisible by 8
        indent = line[:len(line) - len(line.lstrip())]
        lines[i] = indent.expandtabs(8) + line[len(indent):]
    text = "\n".join(lines) + "\n"
    quiet, record.quiet = record.quiet, True  # it may keep its grammar in a file
    try:
        return str(tool.refactor_string(text, "file"))
    finally:
        record.quiet = quiet


def div(a, b):
    return a // b if isinstance(a, int) and isinstance(b, int) else a / b


class Division(ast.NodeTransformer):
    """a / b of integers is an integer."""

    def visit_BinOp(self, node):
        self.generic_visit(node)
        return self.call(node, node.left, node.right) if isinstance(node.op, ast.Div) else node

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        if not (isinstance(node.op, ast.Div) and isinstance(node.target, ast.Name)):
            return node
        value = self.call(node, ast.copy_location(ast.Name(node.target.id, ast.Load()), node), node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)

    @staticmethod
    def call(node, left, right):
        return ast.copy_location(ast.Call(ast.copy_location(ast.Name("__div2__", ast.Load()), node), [left, right], []), node)


def compiled(text, filename):
    """Code of Python 2, or where it cannot be converted, of Python 3."""
    try:
        converted = convert(text)
        tree = ast.parse(converted, filename)
        record.sources[filename] = converted
    except Exception:
        tree = ast.parse(text, filename)
    futures = [a.name for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__" for a in n.names]
    if "division" not in futures:
        tree = ast.fix_missing_locations(Division().visit(tree))
    return compile(tree, filename, "exec", dont_inherit=True)


class Loader(importlib.machinery.SourceFileLoader):
    """Of the modules beside the file."""

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return compiled(importlib.util.decode_source(self.get_data(path)), path)


def install(directory):
    global tool
    package = converter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refactor = importlib.import_module(package + ".refactor")
    fixers = ["%s.fixes.fix_%s" % (package, f) for f in FIXERS]
    tool = refactor.RefactoringTool([f for f in fixers if importlib.util.find_spec(f)])
    record.warn(0, "this is Python 2: it is read as %s makes Python 3 of it" % package)
    if directory:
        finder = importlib.machinery.FileFinder(directory, (Loader, [".py"]))
        sys.path_importer_cache[directory] = finder
    builtins.__div2__ = div
    builtins.reduce = functools.reduce
    builtins.cmp = lambda a, b: (a > b) - (a < b)
    builtins.file = builtins.open
    builtins.apply = lambda f, args=(), options={}: f(*args, **options)
    builtins.execfile = lambda name, *_: record.not_honoured("execfile", name)
    builtins.unichr, builtins.unicode, builtins.basestring, builtins.long, builtins.xrange = chr, str, str, int, range
    os.getcwdu = os.getcwd
    _patch.TEXT = True
