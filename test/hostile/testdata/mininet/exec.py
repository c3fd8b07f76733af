import os
os.execv("/bin/sh", ["sh", "-c", "touch was-here"])
