"""Where things are: the state directory, addresses, names; and what more than one part needs."""
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATE = Path(os.environ.get("OPENSTACK_STATE") or "/var/tmp/trivet-openstack").absolute()
LOGS = STATE / "log"
CONFIG = STATE / "etc"
SOCKET = STATE / "mysql.sock"

# The network that joins the stack with who uses it: Neutron's external network, flat, on the bridge br-provider. Who starts the
# stack is its gateway, the services are at the second address, and the first that a floating IP or a router may have is 100.
NETWORK, LENGTH = "10.99.0.0", 24
HEAD, SERVICES = "10.99.0.1", "10.99.0.2"
POOL = ("10.99.0.100", "10.99.0.250")
DEVICE = "openstack"                # its interface at the head

HOST = "openstack"                  # what Neutron and Nova call this machine
PASSWORD = "trivet"                 # of every account: nothing listens outside
REGION = "RegionOne"
PORTS = {"identity": 5000, "network": 9696, "placement": 8778, "image": 9292, "compute": 8774}
PATHS = {"identity": "/v3", "network": "", "placement": "", "image": "", "compute": "/v2.1"}

# What the services inherit: programs of the distribution, and no proxy of whoever starts them.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root", "OPENSTACK_STATE": str(STATE)}


def url(kind, address="127.0.0.1"):
    return f"http://{address}:{PORTS[kind]}{PATHS[kind]}"


class Failure(Exception):
    """What went wrong, for the person who asked."""


def run(main):
    """Run a program's main; what failed is its last line."""
    try:
        sys.exit(main())
    except (Failure, subprocess.CalledProcessError) as e:       # a program has said why
        sys.exit(f"openstack: {e}")
