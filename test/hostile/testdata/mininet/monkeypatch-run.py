import sys
for name in list(sys.modules):
    if "mininet" in name or name == "run":
        sys.modules[name] = None
from mininet.net import Mininet
