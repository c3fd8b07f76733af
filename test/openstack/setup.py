#!/usr/bin/python3
"""Starts all services inside the stack's namespaces, in order, makes what they lack, and ends when they are ready. What
is there from the last time (databases, accounts, images) is taken as it is."""
import base64
import calendar
import os
import shutil
import socket
import subprocess
import sys
import time

import config
import ports
from api import Api, wait
from place import CONFIG, ENVIRONMENT, HEAD, HERE, LENGTH, LOGS, NETWORK, PASSWORD, POOL, PORTS, REGION, SERVICES, SOCKET, STATE, Failure, run, url

MODE = sys.argv[1]
COMPUTE = MODE in config.DRIVERS
BRIDGES = MODE == "bridges"
AGENT = "neutron-linuxbridge-agent" if BRIDGES else "neutron-openvswitch-agent"
BEGAN = time.time()
STARTED = {}
api = Api()


def main():
    for d in ("keys", "nova/instances", "glance/images", "glance/staging", "glance/tasks", "done"):
        (STATE / d).mkdir(parents=True, exist_ok=True)
    shutil.rmtree(STATE / "run", ignore_errors=True)        # a file for each service: its process, or that it ended
    (STATE / "run").mkdir()
    config.write(MODE)
    base()
    databases()
    say("databases are made")
    identity_and_network()
    if COMPUTE:
        compute()
    wait_for("neutron", agents_alive)
    once("provider", provider)
    if COMPUTE:
        compute_is_ready()
    if MODE == "fake":
        start("bodies", [sys.executable, "-B", str(HERE / "bodies.py")])


def say(text):
    print(f"{time.time() - BEGAN:6.1f}  {text}", flush=True)


def start(name, command, **environment):
    with open(LOGS / f"{name}.log", "ab") as log:
        STARTED[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                         env=ENVIRONMENT | environment)
    (STATE / "run" / name).write_text(str(STARTED[name].pid))


def wait_for(what, test):
    """Wait long: the machine may be busy with other things, and what will never be ready ends as a rule."""
    def checked():
        for name, process in STARTED.items():
            if process.poll() is not None:
                raise Failure(f"{name} has ended by itself, with status {process.returncode}; what it said is in {LOGS}/{name}.log")
        return test()
    wait(what, 900, checked)


def program(name, *command):
    """Run a program to its end; what it says goes to a log."""
    with open(LOGS / f"{name}.log", "ab") as log:
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode:
            raise Failure(f"{' '.join(command[:3])} failed; what it said is in {LOGS / name}.log")


def once(what, do):
    """Do what is to be done once in the life of the state."""
    if not (STATE / "done" / what).exists():
        do()
        (STATE / "done" / what).touch()


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def sql(statement):
    return subprocess.run(["mariadb", "--no-defaults", f"--socket={SOCKET}", "-uroot", "-e", statement], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


# ---------------------------------------------------------------- what all rest on

def base():
    once("mysql", lambda: program("mariadb-install", "mariadb-install-db", "--no-defaults", f"--datadir={STATE}/mysql",
                                  "--user=root", "--skip-test-db", "--auth-root-authentication-method=normal"))
    start("mariadb", ["mariadbd", f"--defaults-file={CONFIG}/my.cnf"])
    start("memcached", ["memcached", "-l", "127.0.0.1", "-U", "0", "-u", "root", "-m", "64"])
    rabbitmq()
    bridges() if BRIDGES else openvswitch()
    provider_bridge()
    wait_for("mariadb", lambda: sql("select 1"))
    say(f"mariadb, memcached, {'bridges' if BRIDGES else 'open vswitch'} are up")


def rabbitmq():
    """A new broker each time: quicker than mending the last one, and no stale messages. The program is the one behind
    Debian's wrapper, which would change to another user."""
    home = STATE / "rabbitmq"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    start("rabbitmq", ["/usr/lib/rabbitmq/bin/rabbitmq-server"], HOME=str(home), ERL_EPMD_ADDRESS="127.0.0.1",
          RABBITMQ_NODENAME="openstack@localhost",
          RABBITMQ_CONFIG_FILE=f"{CONFIG}/rabbitmq.conf", RABBITMQ_ENABLED_PLUGINS_FILE=f"{CONFIG}/rabbitmq.plugins",
          RABBITMQ_MNESIA_BASE=f"{home}/mnesia", RABBITMQ_LOG_BASE=str(LOGS), RABBITMQ_PID_FILE="/run/rabbitmq.pid",
          RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none")


def openvswitch():
    """An empty one each time: the agent lays all ports and flows anew."""
    program("ovsdb-server", "ovsdb-tool", "create", "/run/openvswitch/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
    start("ovsdb-server", ["ovsdb-server", "/run/openvswitch/conf.db", "--remote=punix:/run/openvswitch/db.sock",
                           "--remote=db:Open_vSwitch,Open_vSwitch,manager_options", "-vconsole:warn", "-vsyslog:off"])
    wait_for("ovsdb-server", lambda: os.path.exists("/run/openvswitch/db.sock"))
    program("ovs-vsctl", "ovs-vsctl", "--timeout=30", "--no-wait", "init", "--", "set", "Open_vSwitch", ".", "external_ids:system-id=openstack")
    start("ovs-vswitchd", ["ovs-vswitchd", "unix:/run/openvswitch/db.sock", "-vconsole:warn", "-vsyslog:off"])
    program("ovs-vsctl", "ovs-vsctl", "--timeout=60", "--", "add-br", "br-int",
            "--", "set", "bridge", "br-int", "datapath_type=netdev", "fail_mode=secure",
            "--", "add-br", "br-provider", "--", "set", "bridge", "br-provider", "datapath_type=netdev")


def bridges():
    """The kernel's: the agent makes one for each network, but for that of the provider."""
    program("ip", "ip", "link", "add", "br-provider", "type", "bridge")


def provider_bridge():
    ports.run("ip", "addr", "add", f"{SERVICES}/{LENGTH}", "dev", "br-provider")
    ports.run("ip", "link", "set", "br-provider", "up")
    ports.join(sys.argv[2])


def databases():
    """The schemas of all services, at the same time: each is a long chain of migrations."""
    if not (STATE / "keys" / "1").exists():
        for key in "01":
            (STATE / "keys" / key).write_bytes(base64.urlsafe_b64encode(os.urandom(32)))
    c = f"--config-file {CONFIG}"
    schemas = {
        "neutron": (["neutron"], f"neutron-db-manage {c}/neutron.conf {c}/ml2.ini upgrade heads"),
        "keystone": (["keystone"], f"keystone-manage {c}/keystone.conf db_sync &&"
                     f" keystone-manage {c}/keystone.conf bootstrap --bootstrap-password {PASSWORD}"
                     f" --bootstrap-public-url {url('identity', SERVICES)} --bootstrap-internal-url {url('identity')} --bootstrap-region-id {REGION}"),
    }
    if COMPUTE:
        nova = f"nova-manage {c}/nova.conf"
        schemas |= {
            "glance": (["glance"], f"glance-manage {c}/glance-api.conf db_sync"),
            "placement": (["placement"], f"placement-manage {c}/placement.conf db sync"),
            "nova": (["nova", "nova_api", "nova_cell0"], f"{nova} api_db sync &&"
                     f" {nova} cell_v2 map_cell0 --database_connection '{config.database('nova_cell0')}' &&"
                     f" {nova} db sync && {nova} cell_v2 create_cell --name cell1"),
        }
    made = {}
    for name, (databases, command) in schemas.items():
        if (STATE / "done" / f"schema-{name}").exists():
            continue
        for d in databases:
            # What is there was cut short.
            sql(f"drop database if exists {d}; create database {d} character set utf8mb3")
        with open(LOGS / f"schema-{name}.log", "wb") as log:
            made[name] = subprocess.Popen(["sh", "-ec", command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    failed = [name for name, process in made.items() if process.wait()]
    for name in made:
        if name not in failed:
            (STATE / "done" / f"schema-{name}").touch()
    if failed:
        raise Failure(f"the database of {failed[0]} could not be made; why is in {LOGS}/schema-{failed[0]}.log")


# ---------------------------------------------------------------- services

def wsgi(name, kind, file, **environment):
    """uWSGI drops a connection that rests without a word, which a client that kept it takes for an outage; so it says that it closes it."""
    start(name, ["uwsgi", "--plugin", "python3", "--http-socket", f"0.0.0.0:{PORTS[kind]}", "--wsgi-file", file,
                 "--master", "--processes", str(config.WORKERS), "--threads", "4", "--enable-threads", "--lazy-apps",
                 "--die-on-term", "--buffer-size", "65535", "--need-app", "--disable-logging",
                 "--add-header", "Connection: close"], **environment)


def identity_and_network():
    wsgi("keystone", "identity", "/usr/bin/keystone-wsgi-public", OS_KEYSTONE_CONFIG_FILES=f"{CONFIG}/keystone.conf")
    neutron = f"--config-file={CONFIG}/neutron.conf"
    start("neutron-server", ["neutron-server", neutron, f"--config-file={CONFIG}/ml2.ini"])
    wait_for("rabbitmq", lambda: listens(5672))
    start(AGENT, [AGENT, neutron, f"--config-file={CONFIG}/agents.ini"])
    wait_for("keystone", lambda: api.get("identity", "/projects"))
    once("accounts-compute" if COMPUTE else "accounts", accounts)
    say("keystone is ready")
    # An agent that calls before the server listens waits for the answer until its time is over. The one above takes
    # seconds before it calls.
    wait_for("neutron-server", lambda: listens(PORTS["network"]))
    for agent in ("neutron-l3-agent", "neutron-dhcp-agent"):
        start(agent, [agent, neutron, f"--config-file={CONFIG}/agents.ini"])


def accounts():
    names = {"network": "neutron"}
    if COMPUTE:
        names |= {"placement": "placement", "image": "glance", "compute": "nova"}
    for kind, name in names.items():
        service = api.ensure("identity", "/services", "service", {"name": name, "type": kind})
        for interface, address in (("public", SERVICES), ("internal", "127.0.0.1")):
            api.ensure("identity", "/endpoints", "endpoint",
                       {"service_id": service, "interface": interface, "region_id": REGION}, {"url": url(kind, address)})
    project = api.ensure("identity", "/projects", "project", {"name": "demo", "domain_id": "default"})
    user = api.ensure("identity", "/users", "user", {"name": "demo", "domain_id": "default"}, {"password": PASSWORD, "default_project_id": project})
    role = api.ensure("identity", "/roles", "role", {"name": "member"})
    api.call("PUT", "identity", f"/projects/{project}/users/{user}/roles/{role}")


def fresh(stamp):
    """Told since this start, not by a process of the last one."""
    return calendar.timegm(time.strptime(stamp[:19].replace("T", " "), "%Y-%m-%d %H:%M:%S")) >= int(BEGAN)


def agents_alive():
    up = {a["binary"] for a in api.get("network", "/v2.0/agents")["agents"] if a["alive"] and fresh(a["heartbeat_timestamp"])}
    return up >= {AGENT, "neutron-l3-agent", "neutron-dhcp-agent"}


def provider():
    """The external network, from which floating IPs are."""
    network = api.ensure("network", "/v2.0/networks", "network", {"name": "provider"}, {
        "provider:network_type": "flat", "provider:physical_network": "provider", "router:external": True, "mtu": 1500})
    api.ensure("network", "/v2.0/subnets", "subnet", {"name": "provider", "network_id": network}, {
        "ip_version": 4, "cidr": f"{NETWORK}/{LENGTH}", "gateway_ip": HEAD, "enable_dhcp": False,
        "allocation_pools": [{"start": POOL[0], "end": POOL[1]}]})


def compute():
    wsgi("placement", "placement", "/usr/bin/placement-api", OS_PLACEMENT_CONFIG_DIR=str(CONFIG))
    start("glance", ["glance-api", f"--config-file={CONFIG}/glance-api.conf"])
    if MODE == "full":
        libvirt()
    for service in ("nova-api", "nova-conductor", "nova-scheduler", "nova-compute"):
        start(service, [service, f"--config-file={CONFIG}/nova.conf"])


def libvirt():
    """With directories of its own in place of those that are fixed in it."""
    for at in ("/etc/libvirt", "/var/lib/libvirt", "/var/cache/libvirt"):
        own = STATE / "libvirt" / at[1:]
        own.mkdir(parents=True, exist_ok=True)
        os.makedirs(at, exist_ok=True)
        ports.run("mount", "--bind", str(own), at)
    with open("/etc/libvirt/libvirtd.conf", "w") as f:
        f.write('auth_unix_rw = "none"\nauth_unix_ro = "none"\nlog_outputs = "3:stderr"\n')
    with open("/etc/libvirt/qemu.conf", "w") as f:
        f.write('user = "root"\ngroup = "root"\ndynamic_ownership = 0\nremember_owner = 0\n'
                'security_driver = "none"\ncgroup_controllers = []\nstdio_handler = "file"\nnamespaces = []\n')
    start("libvirtd", ["libvirtd", "--config", "/etc/libvirt/libvirtd.conf"])
    wait_for("libvirtd", lambda: os.path.exists("/run/libvirt/libvirt-sock"))


def compute_is_ready():
    def up():
        services = api.get("compute", "/os-services?binary=nova-compute")["services"]
        return any(s["state"] == "up" and s["updated_at"] and fresh(s["updated_at"]) for s in services)
    wait_for("nova-compute", up)
    once(f"host-{MODE}", lambda: program("discover", "nova-manage", f"--config-file={CONFIG}/nova.conf", "cell_v2", "discover_hosts"))
    wait_for("the hypervisor", lambda: api.get("compute", "/os-hypervisors")["hypervisors"])
    wait_for("glance", lambda: api.get("image", "/v2/images") is not None)
    for name, memory in (("tiny", 96), ("small", 192), ("medium", 512)):
        api.ensure("compute", "/flavors?is_public=None", "flavor", {"name": name}, {"ram": memory, "vcpus": 1, "disk": 1})
    once(f"images-{MODE}", images)
    say("nova is ready")


def images():
    """For guests that are emulated, tiny, which boots (image); for bodies one of which nothing is read."""
    def image(name, form, container, file, **more):
        id = api.ensure("image", "/v2/images", "image", {"name": name},
                        {"disk_format": form, "container_format": container, "visibility": "public", **more})
        if api.get("image", f"/v2/images/{id}")["status"] == "queued":
            api.call("PUT", "image", f"/v2/images/{id}/file", raw=file.read_bytes() if file else b"\0" * 512)
        return id
    if MODE == "fake":
        image("body", "raw", "bare", None)
        return
    line = "console=ttyS0 quiet panic=1 mitigations=off tsc=reliable no_timer_check"
    at = STATE / "image"
    boot = {"kernel_id": image("tiny-kernel", "aki", "aki", at / "vmlinuz"), "ramdisk_id": image("tiny-initrd", "ari", "ari", at / "initrd")}
    image("tiny", "raw", "bare", at / "disk.raw", os_command_line=line, **boot)
    image("tiny-config-drive", "raw", "bare", at / "disk.raw", img_config_drive="mandatory", os_command_line=line + " tiny.configdrive", **boot)


run(main)
