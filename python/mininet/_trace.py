"""What a script that fails shows: its own lines and what is wrong, without the lines of these packages in between.
TRIVET_DEBUG=1 shows all."""
import os
import sys
import traceback

import trivet

_ours = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, trivet.__file__))


def show(kind, value, trace):
    """Print an exception as Python does."""
    whole = traceback.TracebackException(kind, value, trace)
    part = whole
    while part is not None:
        lines = [frame for frame in part.stack if not os.path.abspath(frame.filename).startswith(_ours)]
        if lines and not os.environ.get("TRIVET_DEBUG"):
            part.stack[:] = lines
        part = part.__cause__ or part.__context__
    print("".join(whole.format()), end="", file=sys.stderr)


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = show
