"""The configuration files of all services. Defaults of OpenStack are not repeated."""
from place import CONFIG, HOST, PASSWORD, REGION, SERVICES, SOCKET, STATE, url

WORKERS = 2         # processes of each API

# How a service asks Keystone, in each section that needs it.
AUTH = f"""
auth_url = {url("identity")}
auth_type = password
username = admin
password = {PASSWORD}
project_name = admin
user_domain_id = default
project_domain_id = default
region_name = {REGION}
valid_interfaces = internal
"""

TOKENS = f"""
[keystone_authtoken]
www_authenticate_uri = {url("identity", SERVICES)}
memcached_servers = 127.0.0.1:11211
service_token_roles_required = false
{AUTH}
"""


def database(name):
    return f"mysql+pymysql://root@localhost/{name}?unix_socket={SOCKET}&charset=utf8"


def common(name):
    """The end of a file's [DEFAULT], and the sections that all services share."""
    return f"""
transport_url = rabbit://guest:guest@127.0.0.1:5672/
use_stderr = true

[database]
connection = {database(name)}
max_pool_size = 5
max_overflow = 20

[oslo_concurrency]
lock_path = /run/lock

[oslo_messaging_rabbit]
rabbit_retry_interval = 1
rabbit_retry_backoff = 1
heartbeat_in_pthread = false

[oslo_messaging_notifications]
driver = noop

[oslo_policy]
policy_dirs = {CONFIG}/policy.d
"""


def privileged(file, *sections):
    """Privileged helpers are started directly, not by sudo: all is root here."""
    return "".join(f"\n[{s}]\nhelper_command = privsep-helper --config-file {CONFIG}/{file}\n" for s in sections)


def write(mode):
    """Write all that a mode (network, bridges, fake or full) needs."""
    compute = mode in DRIVERS
    (CONFIG / "policy.d").mkdir(parents=True, exist_ok=True)
    files = dict(base=BASE, network=NETWORK)
    if compute:
        files["compute"] = COMPUTE
    words = {"@COMPUTE@": str(compute).lower(), "@DRIVER@": DRIVERS.get(mode, ""), **(BRIDGES if mode == "bridges" else OPENVSWITCH)}
    for group in files.values():
        for name, text in group.items():
            for word, value in words.items():
                text = text.replace(word, value)
            (CONFIG / name).write_text(text)
    (STATE / "clouds.yaml").write_text("clouds:\n" + "".join(CLOUD.format(who=who) for who in ("admin", "demo")))


CLOUD = f"""\
  {{who}}:
    region_name: {REGION}
    auth:
      auth_url: {url("identity", SERVICES)}
      username: {{who}}
      password: {PASSWORD}
      project_name: {{who}}
      user_domain_id: default
      project_domain_id: default
"""

BASE = {
    # A database that is quick rather than safe: it only has to outlive its own process.
    "my.cnf": f"""
[mysqld]
datadir = {STATE}/mysql
socket = {SOCKET}
pid-file = /run/mysql.pid
skip-networking
skip-name-resolve
skip-grant-tables
skip-log-bin
user = root
character-set-server = utf8mb3
collation-server = utf8mb3_general_ci
max_connections = 500
innodb_buffer_pool_size = 192M
innodb_log_file_size = 32M
innodb_flush_log_at_trx_commit = 0
innodb_doublewrite = 0
innodb_flush_method = nosync
performance_schema = 0
""",
    "rabbitmq.conf": "listeners.tcp.1 = 127.0.0.1:5672\nlog.file.level = warning\n",
    "rabbitmq.plugins": "[].\n",
    "keystone.conf": f"""
[DEFAULT]
{common("keystone")}
[cache]
enabled = true
backend = dogpile.cache.memcached
memcache_servers = 127.0.0.1:11211
[token]
provider = fernet
expiration = 86400
[fernet_tokens]
key_repository = {STATE}/keys
[fernet_receipts]
key_repository = {STATE}/keys
[credential]
key_repository = {STATE}/keys
[identity]
password_hash_rounds = 4
""",
}

# Neutron by Open vSwitch, which forwards in user space, so that no module of the kernel is needed.
OPENVSWITCH = {
    "@SWITCH@": "openvswitch",
    "@TENANTS@": "vxlan",
    "@MTU@": "1550",
    "@WIRING@": """
[ovs]
ovsdb_connection = unix:/run/openvswitch/db.sock
integration_bridge = br-int
bridge_mappings = provider:br-provider
datapath_type = netdev
local_ip = 127.0.0.1
[agent]
tunnel_types = vxlan
l2_population = false
polling_interval = 1
minimize_polling = true
extensions =
[securitygroup]
enable_security_group = true
firewall_driver = openvswitch
""",
}

# Neutron by Linux bridges, so that the kernel forwards. Networks are of this machine alone, and nothing is filtered:
# security groups would need modules of the kernel.
BRIDGES = {
    "@SWITCH@": "linuxbridge",
    "@TENANTS@": "local",
    "@MTU@": "1500",
    "@WIRING@": """
[linux_bridge]
bridge_mappings = provider:br-provider
[vxlan]
enable_vxlan = false
[agent]
polling_interval = 1
prevent_arp_spoofing = false
extensions =
[securitygroup]
enable_security_group = false
firewall_driver = noop
""",
}

NETWORK = {
    # A VXLAN network has an MTU of 50 less than @MTU@, so 1500. Agents are down late: the machine is at work with other things, too.
    "neutron.conf": f"""
[DEFAULT]
core_plugin = ml2
service_plugins = router,trunk
api_workers = {WORKERS}
rpc_workers = 1
rpc_state_report_workers = 0
api_paste_config = /etc/neutron/api-paste.ini
state_path = /run/neutron
host = {HOST}
auth_strategy = keystone
global_physnet_mtu = @MTU@
dhcp_agents_per_network = 1
notify_nova_on_port_status_changes = @COMPUTE@
notify_nova_on_port_data_changes = @COMPUTE@
send_events_interval = 0
agent_down_time = 75
interface_driver = @SWITCH@
{common("neutron")}
[experimental]
linuxbridge = true
[agent]
root_helper =
report_interval = 30
[quotas]
default_quota = -1
quota_network = -1
quota_subnet = -1
quota_port = -1
quota_router = -1
quota_floatingip = -1
quota_security_group = -1
quota_security_group_rule = -1
quota_trunk = -1
{TOKENS}
[nova]
endpoint_type = internal
{AUTH}
[placement]
{AUTH}
{privileged("neutron.conf", "privsep", "privsep_dhcp_release", "privsep_ovs_vsctl", "privsep_namespace",
            "privsep_conntrack", "privsep_link")}
""",
    # Ranges are small: each number of a range is a row of a table.
    "ml2.ini": """
[ml2]
type_drivers = local,flat,vlan,vxlan
tenant_network_types = @TENANTS@
mechanism_drivers = @SWITCH@
extension_drivers = port_security
path_mtu = 0
[ml2_type_flat]
flat_networks = *
[ml2_type_vlan]
network_vlan_ranges = provider:1:999
[ml2_type_vxlan]
vni_ranges = 1:9999
[securitygroup]
enable_security_group = true
""",
    "agents.ini": """
[DEFAULT]
rpc_response_timeout = 15
dhcp_driver = neutron.agent.linux.dhcp.Dnsmasq
enable_isolated_metadata = false
enable_metadata_network = false
enable_metadata_proxy = false
dnsmasq_local_resolv = false
dhcp_broadcast_reply = true
agent_mode = legacy
resync_interval = 5
@WIRING@
""",
}

DRIVERS = {"fake": "fake.FakeDriver", "full": "libvirt.LibvirtDriver"}

COMPUTE = {
    "placement.conf": f"""
[DEFAULT]
{common("placement")}
[placement_database]
connection = {database("placement")}
[api]
auth_strategy = keystone
{TOKENS}
""",
    "glance-api.conf": f"""
[DEFAULT]
workers = 0
enabled_backends = file:file
{common("glance")}
[glance_store]
default_backend = file
[file]
filesystem_store_datadir = {STATE}/glance/images
[os_glance_staging_store]
filesystem_store_datadir = {STATE}/glance/staging
[os_glance_tasks_store]
filesystem_store_datadir = {STATE}/glance/tasks
[paste_deploy]
flavor = keystone
config_file = /etc/glance/glance-api-paste.ini
{TOKENS}
""",
    # Emulation, also where KVM could be opened: the same everywhere.
    "nova.conf": f"""
[DEFAULT]
host = {HOST}
my_ip = 127.0.0.1
state_path = {STATE}/nova
enabled_apis = osapi_compute
osapi_compute_workers = {WORKERS}
compute_driver = @DRIVER@
instances_path = {STATE}/nova/instances
config_drive_format = iso9660
force_raw_images = true
reserved_host_memory_mb = 0
ram_allocation_ratio = 16.0
cpu_allocation_ratio = 128.0
disk_allocation_ratio = 1000.0
vif_plugging_timeout = 120
running_deleted_instance_poll_interval = 0
max_concurrent_builds = 4
sync_power_state_interval = 600
heal_instance_info_cache_interval = 0
allow_resize_to_same_host = true
{common("nova")}
[api_database]
connection = {database("nova_api")}
max_pool_size = 5
[api]
auth_strategy = keystone
[wsgi]
api_paste_config = /etc/nova/api-paste.ini
[quota]
instances = -1
cores = -1
ram = -1
key_pairs = -1
server_groups = -1
server_group_members = -1
[libvirt]
virt_type = qemu
cpu_mode = none
connection_uri = qemu:///system?socket=/run/libvirt/libvirt-sock
inject_partition = -2
images_type = raw
rng_dev_path = /dev/urandom
wait_soft_reboot_seconds = 0
[workarounds]
disable_native_luksv1 = true
[vnc]
enabled = false
[spice]
enabled = false
[glance]
api_servers = {url("image")}
{AUTH}
[neutron]
{AUTH}
[placement]
{AUTH}
[service_user]
send_service_user_token = false
{AUTH}
[scheduler]
workers = 1
discover_hosts_in_cells_interval = -1
[conductor]
workers = 1
[filter_scheduler]
track_instance_changes = false
[os_vif_ovs]
ovsdb_connection = unix:/run/openvswitch/db.sock
ovsdb_interface = native
{TOKENS}
{privileged("nova.conf", "nova_sys_admin", "vif_plug_ovs_privileged", "vif_plug_linux_bridge_privileged", "privsep_osbrick")}
""",
}
