import os
os.symlink("/etc/passwd", "was-here")
