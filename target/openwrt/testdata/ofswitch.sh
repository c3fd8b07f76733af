# What this device is to become, for the commands below.
lab='lab'
id='ABC'
agent='ofswitch'
bridge='s1'
keep='600'
ports='lan1 lan3 s1-eth3'
taken='lan1 lan3'
edit() {
	while uci -q delete 'openflow.@ofswitch[0]'; do :; done
	uci -q 'set' 'network.trivet_p1=interface' || return 1
	uci -q 'set' 'network.trivet_p1.proto=none' || return 1
	uci -q 'set' 'network.trivet_p1.ifname=lan1' || return 1
	uci -q 'set' 'network.trivet_p2=interface' || return 1
	uci -q 'set' 'network.trivet_p2.proto=none' || return 1
	uci -q 'set' 'network.trivet_p2.ifname=lan3' || return 1
	uci -q 'set' 'network.trivet_v3=device' || return 1
	uci -q 'set' 'network.trivet_v3.type=8021q' || return 1
	uci -q 'set' 'network.trivet_v3.ifname=lan4' || return 1
	uci -q 'set' 'network.trivet_v3.vid=1001' || return 1
	uci -q 'set' 'network.trivet_v3.name=s1-eth3' || return 1
	uci -q 'set' 'network.trivet_p3=interface' || return 1
	uci -q 'set' 'network.trivet_p3.proto=none' || return 1
	uci -q 'set' 'network.trivet_p3.ifname=s1-eth3' || return 1
	uci -q 'set' 'network.lan.ifname=lan2 lan4' || return 1
	uci -q 'set' 'network.wan.proto=none' || return 1
	uci -q 'set' 'openflow.trivet=ofswitch' || return 1
	uci -q 'set' 'openflow.trivet.dp=dp0' || return 1
	uci -q 'set' 'openflow.trivet.dpid=000000000001' || return 1
	uci -q 'set' 'openflow.trivet.ofports=lan1 lan3 s1-eth3' || return 1
	uci -q 'set' 'openflow.trivet.ofctl=tcp:127.0.0.1:16653' || return 1
	uci -q 'set' 'openflow.trivet.mode=outofband' || return 1
	:
}
make_bridge() {
	ovs '--' 'add-br' 's1' '--' 'set' 'bridge' 's1' 'fail_mode=secure' 'protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13' 'other_config:datapath-id=0000000000000001' 'other_config:disable-in-band=true' '--' 'add-port' 's1' 'lan1' '--' 'set' 'interface' 'lan1' 'ofport_request=1' '--' 'add-port' 's1' 'lan3' '--' 'set' 'interface' 'lan3' 'ofport_request=2' '--' 'set' 'port' 'lan3' 'vlan_mode=trunk' 'trunks=4095' '--' 'add-port' 's1' 's1-eth3' '--' 'set' 'interface' 's1-eth3' 'ofport_request=3' '--' 'set-controller' 's1' 'tcp:127.0.0.1:16653' '--' 'set' 'controller' 's1' 'max_backoff=1000' -- set bridge 's1' "datapath_type=$datapath" || return 1
	:
}
set_down() {
	ip link set dev 'lan3' down
	:
}
check_numbers() {
	numbered 'lan1' 1 || return 1
	numbered 'lan3' 2 || return 1
	numbered 's1-eth3' 3 || return 1
	:
}
