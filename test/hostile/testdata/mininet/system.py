import os
if os.system("touch was-here") != 0:
    raise OSError("there is no shell")
