"""What the program did: its networks, its links, and what of it has no effect here."""
import sys

SCRIPT = ""       # the user's file, as compiled
sources = {}      # the texts of files that are not compiled as they lie on the disk, by name
MOST = 100        # warnings; more are counted

networks = []     # every Mininet, in order
links = []        # every Link, and every Intf without one
warnings = []     # [line, text]
dropped = 0
quiet = False     # while a network is taken down, nothing is recorded or reported
count = 0


def line_of(frame):
    """The line of the user's file that is being executed in or above the frame; 0 for none."""
    while frame is not None:
        if frame.f_code.co_filename == SCRIPT:
            return frame.f_lineno
        frame = frame.f_back
    return 0


def here():
    return line_of(sys._getframe(1))


def sequence():
    """Numbers things in the order of their making."""
    global count
    count += 1
    return count


def warn(line, text):
    global dropped
    entry = [line, text]
    if quiet or entry in warnings:
        return
    if len(warnings) >= MOST:
        dropped += 1
    else:
        warnings.append(entry)


def shown(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:58] + "…" + text[0] if text[0] in "'\"" else text[:59] + "…"


def not_honoured(call, *args, why=""):
    """Reports a call like h1.cmd('ls') that has no effect."""
    warn(here(), "%s(%s): not honoured%s" % (call, ", ".join(map(shown, args)), why and "; " + why))
