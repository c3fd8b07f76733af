"""python -m trivet is the program."""
import os
import sys

from ._binary import find

if __name__ == "__main__":
    os.execv(find(), ["trivet", *sys.argv[1:]])
