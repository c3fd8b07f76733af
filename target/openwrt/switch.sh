# shellcheck shell=dash disable=SC2154,SC2034 # variables and some functions come before this
# Makes an OpenWrt device a switch, and what it was again:
#
#   sh switch.sh up       says what is wrong and leaves nothing behind if it cannot be done
#   sh switch.sh down     may be called at any time, and again
#   sh switch.sh watch    calls down when no heartbeat has come for too long
#   sh switch.sh beat     passes each line of its input on as a heartbeat
#   sh switch.sh status   of the connections to controllers
#   sh switch.sh flows    how many flow entries there are
#   sh switch.sh vsctl COMMAND...   of ovs-vsctl, for its database
#   sh switch.sh ofctl VERSIONS COMMAND [ARGUMENT...]   of ovs-ofctl, for the switch; its input is what it is told
#   sh switch.sh connected ADDRESS:PORT   whether something is connected to a controller
#   sh switch.sh set      sets ports up, and those down that are to be
#
# All of it is in /var/run, which is memory and root's alone: nobody else can have put a script there that root is
# told to run. Changes of the configuration are not committed: netifd and init scripts read them from /tmp/.uci. So
# the device, when it starts, is what it was. It uses what OpenWrt always has: busybox, uci, and the init scripts of
# what is configured.
dir=/var/run/trivet-$id
claim=/var/run/trivet
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
export OVS_RUNDIR="$dir" OVS_LOGDIR="$dir" OVS_DBDIR="$dir"
unset OVS_SYSCONFDIR

fail() {
	echo "$*" >&2
	exit 1
}

# await SECONDS COMMAND...: until it succeeds.
await() {
	local left=$(($1 * 5))
	shift
	until "$@"; do
		left=$((left - 1))
		[ $left -gt 0 ] || return 1
		sleep 0.2 2>/dev/null || sleep 1
	done
}

bridge_of() { # of an interface; none: nothing
	local master
	master=$(readlink "/sys/class/net/$1/master") && echo "${master##*/}"
}

is_free() { [ -e "/sys/class/net/$1" ] && [ -z "$(bridge_of "$1")" ]; }
has_gone() { ! [ -d "/proc/$1" ]; }

# is_back INTERFACE BRIDGE: again in what it was in.
is_back() { [ "$(bridge_of "$1")" = "${2:-}" ]; }

# leads_to_us prints the interface by which this SSH connection comes: of a bridge, also the port.
leads_to_us() {
	local client server device hop mac number port
	# shellcheck disable=SC2086 # words
	set -- $SSH_CONNECTION
	client=$1 server=$3
	device=$(ip -o addr show | sed -n "s|^[0-9]*: \([^ ]*\) .* $server/.*|\1|p" | head -n 1)
	[ -n "$device" ] || return 0
	echo "$device"
	[ -d "/sys/class/net/$device/bridge" ] || return 0
	hop=$(ip route get "$client" | sed -n 's/.* via \([^ ]*\) .*/\1/p')
	mac=$(ip neigh show "${hop:-$client}" dev "$device" | sed -n 's/.*lladdr \([0-9a-f:]*\).*/\1/p')
	[ -n "$mac" ] || return 0
	# What the bridge has learned: 16 bytes each (struct __fdb_entry), the address, then the port.
	number=$(hexdump -v -e '16/1 "%02x" "\n"' "/sys/class/net/$device/brforward" | sed -n "s/^$(echo "$mac" | tr -d :)\(..\).*/\1/p" | head -n 1)
	for port in "/sys/class/net/$device/brif"/*; do
		[ $(($(cat "$port/port_no"))) != $((0x${number:-ff})) ] || echo "${port##*/}"
	done
}

# check says what is in the way before anything is changed.
check() {
	local port way
	[ "$(id -u)" = 0 ] || fail "its user is not root: write  ssh: root@…"
	# shellcheck disable=SC2015 # fail does not return
	[ -x /sbin/uci ] && [ -x /etc/init.d/network ] || fail "it has no /sbin/uci and /etc/init.d/network: is it OpenWrt?"
	way=" $(leads_to_us | tr '\n' ' ')"
	for port in $taken; do
		[ -e "/sys/class/net/$port" ] || fail "it has no interface $port; there are: $(echo /sys/class/net/* | sed 's|/sys/class/net/||g')"
		case $way in *" $port "*) fail "SSH reaches it by $port, which is to be a port of the switch: leave it out of ports" ;; esac
	done
	for port in network openflow; do
		[ -z "$(uci -q changes $port)" ] || fail "somebody has changed its configuration and not committed that (uci changes $port): uci commit $port, or uci revert $port"
	done
	case $agent in
	ovs)
		for port in ovs-vsctl ovsdb-server ovs-vswitchd ovsdb-tool; do
			command -v $port >/dev/null || fail "it has no $port: opkg update && opkg install openvswitch"
		done
		[ ! -e "/sys/class/net/$bridge" ] || fail "it has an interface called $bridge, like the switch: call the switch something else"
		if pidof ovs-vswitchd >/dev/null && port=$(env -u OVS_RUNDIR ovs-vsctl --timeout=5 list-br) && [ -n "$port" ]; then
			fail "its Open vSwitch has switches of its own: $(echo "$port" | tr '\n' ' '): remove them first"
		fi
		;;
	ofswitch)
		# shellcheck disable=SC2015
		[ -x /etc/init.d/openflow ] && [ -e /etc/config/openflow ] || fail "it has no /etc/init.d/openflow and /etc/config/openflow: install CPqD's openflow-1.3"
		;;
	esac
}

# claim_device makes this lab the only one here.
claim_device() {
	if ! ln -sn "$dir" $claim 2>/dev/null && [ "$(readlink $claim)" != "$dir" ]; then
		fail "it is a switch of $(sed -n 's/^lab=//p' $claim/switch.sh 2>/dev/null || echo another lab) already: take that down; if it is gone for good:  sh $claim/switch.sh down"
	fi
}

remember() {
	local port
	mkdir -p "$dir/before"
	cp -p /etc/config/network "$dir/before/" || return 1
	[ ! -e /etc/config/openflow ] || cp -p /etc/config/openflow "$dir/before/" || return 1
	for port in $taken; do
		echo "$port $(bridge_of "$port")"
	done >"$dir/before/bridges"
	# shellcheck disable=SC2086 # a list
	cat $notify >"$dir/before/notify" 2>/dev/null || : # a kernel without one of them needs none
}

# A bridge has the lowest MAC of its ports: another one, once some leave or are back. Who knows its addresses by the one before is told.
notify='/proc/sys/net/ipv4/conf/all/arp_notify /proc/sys/net/ipv6/conf/all/ndisc_notify'
tell() {
	local file
	for file in $notify; do
		[ ! -w "$file" ] || echo 1 >"$file"
	done
}

untell() {
	local file value
	for file in $notify; do
		[ ! -w "$file" ] || { read -r value && echo "$value" >"$file"; }
	done <"$dir/before/notify"
}

reload() { /etc/init.d/network reload >/dev/null 2>&1 </dev/null; }

ovs() { ovs-vsctl --timeout=20 --db="unix:$dir/db.sock" "$@"; }

# numbered PORT NUMBER: the port works and has that number.
numbered() {
	local is
	is=$(ovs get interface "$1" ofport) && [ "$is" = "$2" ] && return
	echo "port $1 is number ${is:-unknown} of the switch and not $2: $(ovs get interface "$1" error 2>/dev/null)" >&2
	return 1
}

# start_ovs starts Open vSwitch with a database in memory, in place of the device's own.
start_ovs() {
	if pidof ovs-vswitchd >/dev/null; then
		: >"$dir/before/ovs"
		cp -p /etc/openvswitch/conf.db "$dir/before/" 2>/dev/null
		/etc/init.d/openvswitch stop >/dev/null 2>&1
	fi
	modprobe openvswitch 2>/dev/null
	datapath=netdev
	[ ! -d /sys/module/openvswitch ] || datapath=system
	ovsdb-tool create "$dir/conf.db" /usr/share/openvswitch/vswitch.ovsschema &&
		ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" --pidfile="$dir/ovsdb-server.pid" --detach --no-chdir -vconsole:off &&
		ovs --no-wait init &&
		ovs-vswitchd "unix:$dir/db.sock" --pidfile="$dir/ovs-vswitchd.pid" --detach --no-chdir -vconsole:off &&
		make_bridge && check_numbers
}

stop_ovs() {
	local file pid
	[ ! -S "$dir/db.sock" ] || ovs-vsctl --timeout=5 --db="unix:$dir/db.sock" --if-exists del-br "$bridge" 2>/dev/null
	for file in ovs-vswitchd ovsdb-server; do
		pid=$(cat "$dir/$file.pid" 2>/dev/null) || continue
		kill "$pid" 2>/dev/null
		await 5 has_gone "$pid" || kill -9 "$pid" 2>/dev/null
	done
	[ -e "$dir/before/ovs" ] || return 0
	cp -p "$dir/before/conf.db" /etc/openvswitch/conf.db 2>/dev/null
	/etc/init.d/openvswitch start >/dev/null 2>&1
}

start_ofswitch() {
	! pidof ofdatapath >/dev/null || : >"$dir/before/ofswitch"
	/etc/init.d/openflow stop >/dev/null 2>&1
	/etc/init.d/openflow start >/dev/null 2>&1 </dev/null
	await 10 pidof ofdatapath >/dev/null || { echo "/etc/init.d/openflow start: no ofdatapath runs" >&2 && return 1; }
}

up() {
	local port
	edit || { echo "uci does not take the changes" >&2 && return 1; }
	tell
	reload
	for port in $ports; do
		await 20 is_free "$port" || { echo "$port is still in $(bridge_of "$port") 20 s after  /etc/init.d/network reload" >&2 && return 1; }
		ip link set dev "$port" up || return 1
	done
	"start_$agent" && set_down
}

# restore FILE: what it was, if somebody has committed our changes meanwhile.
restore() {
	[ -e "$dir/before/$1" ] || return 0
	uci -q revert "$1"
	cmp -s "$dir/before/$1" "/etc/config/$1" || cp -p "$dir/before/$1" "/etc/config/$1"
}

down() {
	local port was
	[ -d "$dir" ] || return 0
	if ! mkdir "$dir/going" 2>/dev/null; then # somebody else does it
		await 60 gone || fail "what undoes it has not ended after 60 s"
		return
	fi
	port=$(cat "$dir/doing" 2>/dev/null) && [ "$port" != $$ ] && kill -9 "$port" 2>/dev/null
	if [ "$(readlink $claim)" = "$dir" ]; then
		[ ! -d "$dir/before" ] || undo
		rm -f $claim
	fi
	rm -rf "$dir"
}

gone() { ! [ -d "$dir" ]; }

undo() {
	case $agent in
	ovs) stop_ovs ;;
	ofswitch) /etc/init.d/openflow stop >/dev/null 2>&1 ;;
	esac
	restore network
	restore openflow
	reload
	while read -r port was; do
		await 20 is_back "$port" "$was" || echo "$port is not in ${was:-no bridge} again: /etc/init.d/network restart"
	done <"$dir/before/bridges"
	untell
	[ ! -e "$dir/before/ofswitch" ] || /etc/init.d/openflow start >/dev/null 2>&1 </dev/null
}

# watch counts seconds, as clocks jump once a device without one has found the time. No heartbeat comes
# before the device is a switch, for which it has a minute.
watch() {
	local left=60 forever=
	while [ -d "$dir" ]; do
		if [ -e "$dir/beat" ]; then
			rm -f "$dir/beat"
			left=$keep
			[ "$keep" != 0 ] || forever=1
		elif [ -z "$forever" ]; then
			[ -e "$dir/doing" ] || [ "$keep" = 0 ] || [ "$left" -le "$keep" ] || left=$keep
			left=$((left - 1))
			[ $left -gt 0 ] || { down && exit; }
		fi
		sleep 1
	done
}

case ${1:-} in
up)
	trap '' HUP PIPE # whoever asked may be gone: it is finished, or undone by watch
	claim_device
	if ! (check); then
		down
		exit 1
	fi
	echo $$ >"$dir/doing"
	sh "$0" watch </dev/null >/dev/null 2>&1 &
	if remember && up; then
		rm -f "$dir/doing"
		exit 0
	fi
	rm -f "$dir/doing"
	down
	exit 1
	;;
down)
	trap '' HUP PIPE
	down
	;;
watch)
	trap '' HUP PIPE
	watch
	;;
beat)
	while read -r _; do
		[ -d "$dir" ] || fail "it is no switch any more"
		: >"$dir/beat"
	done
	;;
status) ovs --format=json --columns=target,is_connected,role,status list controller ;;
flows) ovs-ofctl -O OpenFlow13 dump-flows "unix:$dir/$bridge.mgmt" | grep -c actions= || : ;;
vsctl)
	shift
	ovs "$@"
	;;
ofctl)
	port=$2 way=$3
	shift 3
	ovs-ofctl -O "$port" "$way" "unix:$dir/$bridge.mgmt" "$@"
	;;
connected)
	! netstat -tn 2>/dev/null | grep -q "[^0-9.]$2 .*ESTABLISHED" || echo yes
	;;
set)
	for port in $ports; do
		ip link set dev "$port" up
	done
	set_down
	;;
*) fail "up, down, beat, status, flows, set" ;;
esac
