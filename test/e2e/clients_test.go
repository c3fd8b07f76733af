package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/lab"
)

// client is a controller of others with a lab below it, and what its user does with both.
type client struct {
	name     string
	quick    bool   // make test runs it, too
	apps     string // of os-ken
	faucet   string // Faucet's configuration: where apps is empty
	topology string
	steps    []step
}

// step is a shell command that is tried until what it prints matches. In it, X NODE COMMAND is a
// command in a node, and R METHOD PATH [JSON] asks the controller; app.log is what the controller
// writes.
type step struct {
	do, want string
	same     bool // what it prints at last is the same with both datapaths
}

const stepsPrelude = `X() { n=$1; shift; "$TRIVET" exec -n $n -- "$@"; }
R() { curl -sS -X $1 ${3:+-d "$3"} http://127.0.0.1:8080$2; }
C() { X $1 timeout 15 tcpdump -lnn -i $1-eth0 -c $2 "$3" >seen 2>seen.log & # what NODE hears while a command runs
	until grep -q listening seen.log; do sleep 0.05; done; eval "$4" >/dev/null; wait; cat seen; }
P() { X $1 ping -n -c 3 -i 0.2 -W 2 $2 || true; } # prints what came back of 3
`

const (
	all  = ` 3 received`
	none = ` 0 received`
)

const oneSwitch = "nodes: {s1: switch, \"h[1-4]\": host}\nlinks: [\"s1 -- h[1-4]\"]\n"

var clients = []client{
	{
		name: "ofctl_rest", quick: true, apps: "os_ken.app.ofctl_rest",
		topology: "nodes: {s1: {switch: {openflow: 1.3}}, \"h[1-4]\": host}\nlinks: [\"s1 -- h[1-4]\"]\n", // or they agree on 1.5 with Open vSwitch
		steps: []step{
			{do: `R GET /stats/switches`, want: `^\[1\]$`, same: true},
			{do: `R GET /stats/portdesc/1 | python3 -c '
import json, sys
for p in sorted(json.load(sys.stdin)["1"], key=lambda p: str(p["port_no"])):
    print(p["port_no"], p["name"], p["state"] & 1, p["config"])'`, want: `(?s)1 s1-eth1 .*4 s1-eth4 .*(4294967294|LOCAL) s1 0 0`, same: true},
			{do: `R GET /stats/flow/1`, want: `^{"1": \[\]}$`, same: true},
			{do: `R POST /stats/groupentry/add '{"dpid":1,"group_id":7,"type":"ALL","buckets":[{"actions":[{"type":"OUTPUT","port":2}]},{"actions":[{"type":"OUTPUT","port":3}]}]}'`, want: `^$`},
			{do: `R GET /stats/groupdesc/1`, want: `"group_id": 7`, same: true},
			{do: `R POST /stats/meterentry/add '{"dpid":1,"meter_id":3,"flags":["KBPS","STATS"],"bands":[{"type":"DROP","rate":5000,"burst_size":500}]}'`, want: `^$`},
			{do: `R GET /stats/meterconfig/1`, want: `"meter_id": 3`, same: true},
			{do: `for p in 2 3 4; do R POST /stats/flowentry/add '{"dpid":1,"priority":5,"cookie":'$p',"match":{"in_port":'$p'},"actions":[{"type":"METER","meter_id":3},{"type":"OUTPUT","port":1}]}'; done
				R POST /stats/flowentry/add '{"dpid":1,"priority":5,"cookie":1,"flags":1,"match":{"in_port":1},"actions":[{"type":"GROUP","group_id":7}]}'`, want: `^$`},
			{do: `P h1 10.0.0.2`, want: all},
			{do: `P h1 10.0.0.4`, want: none},
			{do: `R GET /stats/flow/1 | python3 -c '
import json, sys
flows = json.load(sys.stdin)["1"]
assert all(f["packet_count"] for f in flows if f["cookie"] in (1, 2)), flows
for f in sorted(flows, key=lambda f: f["cookie"]):
    for k in "packet_count", "byte_count", "duration_sec", "duration_nsec": del f[k]
    print(json.dumps(f, sort_keys=True))'`, want: `"METER:3"`, same: true},
			{do: `R POST /stats/flow/1 '{"match":{"in_port":2},"out_port":1}' | grep -o '"cookie": [0-9]*'`, want: `^"cookie": 2$`, same: true},
			{do: `R GET /stats/group/1 | grep -o '"ref_count": [0-9]*'`, want: `: 1$`, same: true},
			{do: `R GET /stats/meter/1 | grep -o '"meter_id": [0-9]*\|"flow_count": [0-9]*'`, want: `3`, same: true},
			{do: `R GET /stats/queue/1`, want: `"1"`},
			{do: `R GET /stats/queueconfig/1`, want: `"1"`},
			{do: `R GET /stats/groupfeatures/1`, want: `"types"`},
			{do: `R GET /stats/meterfeatures/1`, want: `"max_meter"`},
			{do: `R GET /stats/desc/1`, want: `"mfr_desc"`},
			{do: `R GET /stats/table/1 | python3 -c '
import json, sys
print([t["active_count"] for t in json.load(sys.stdin)["1"]][:3])'`, want: `^\[4, 0, 0\]$`, same: true},
			{do: `R GET /stats/role/1`, want: `EQUAL`, same: true},
			{do: `R POST /stats/portdesc/modify '{"dpid":1,"port_no":2,"config":1,"mask":1}'`, want: `^$`},
			{do: `P h1 10.0.0.2`, want: none},
			{do: `R GET /stats/portdesc/1 | python3 -c '
import json, sys
print([p["config"] & 1 for p in json.load(sys.stdin)["1"] if p["port_no"] == 2])'`, want: `\[1\]`, same: true},
			{do: `R POST /stats/portdesc/modify '{"dpid":1,"port_no":2,"config":0,"mask":1}'`, want: `^$`},
			{do: `P h1 10.0.0.2`, want: all},
			{do: `R POST /stats/groupentry/delete '{"dpid":1,"group_id":7}'`, want: `^$`},
			{do: `R GET /stats/flow/1 | grep -o '"cookie": [0-9]*' | sort`, want: `^"cookie": 2\n"cookie": 3\n"cookie": 4$`, same: true},
			{do: `R DELETE /stats/flowentry/clear/1`, want: `^$`},
			{do: `R GET /stats/flow/1`, want: `^{"1": \[\]}$`, same: true},
		},
	},
	{
		name: "rest_router", apps: "os_ken.app.rest_router",
		topology: `nodes:
  "s[1-2]": switch
  h1: {host: {address: 172.16.20.10/24, gateway: 172.16.20.1}}
  h2: {host: {address: 172.16.10.10/24, gateway: 172.16.10.1}}
  h3: {host: {address: 192.168.30.10/24, gateway: 192.168.30.1}}
links: [s1 -- h1, s1 -- h2, s2 -- h3, s1 -- s2]
`,
		steps: []step{
			{do: `grep -c 'Join as router' app.log`, want: `^2$`},
			{do: `for a in 172.16.20.1/24 172.16.10.1/24 172.16.30.1/24; do R POST /router/0000000000000001 '{"address":"'$a'"}'; done`,
				want: `(?s)success.*success.*success`, same: true},
			{do: `for a in 192.168.30.1/24 172.16.30.2/24; do R POST /router/0000000000000002 '{"address":"'$a'"}'; done`, want: `(?s)success.*success`, same: true},
			{do: `R POST /router/0000000000000001 '{"destination":"192.168.30.0/24","gateway":"172.16.30.2"}'
				R POST /router/0000000000000002 '{"gateway":"172.16.30.1"}'`, want: `(?s)success.*success`, same: true},
			{do: `P h1 172.16.20.1`, want: all},
			{do: `P h1 172.16.10.10`, want: all},
			{do: `P h2 192.168.30.10`, want: all},
			{do: `P h3 172.16.20.10`, want: all},
			{do: `X h1 ping -n -c 1 -W 2 -t 1 192.168.30.10 || true`, want: `172.16.20.1 .*Time to live exceeded`},
			{do: `R GET /router/all/all`, want: `"gateway": "172.16.30.2"`, same: true},
			{do: `R DELETE /router/0000000000000001 '{"route_id":"all"}'`, want: `success`, same: true},
			{do: `P h2 192.168.30.10`, want: none},
		},
	},
	{
		name: "rest_firewall", apps: "os_ken.app.rest_firewall", topology: oneSwitch,
		steps: []step{
			{do: `R GET /firewall/module/status`, want: `"disable"`, same: true},
			{do: `P h1 10.0.0.2`, want: none},
			{do: `R PUT /firewall/module/enable/0000000000000001`, want: `success`, same: true},
			{do: `P h1 10.0.0.2`, want: none},
			{do: `for r in '"nw_src":"10.0.0.1/32","nw_dst":"10.0.0.2/32","nw_proto":"ICMP"' '"nw_src":"10.0.0.2/32","nw_dst":"10.0.0.1/32","nw_proto":"ICMP"' \
				'"nw_src":"10.0.0.3/32"' '"nw_dst":"10.0.0.3/32"' '"nw_src":"10.0.0.4/32","nw_proto":"ICMP","actions":"DENY","priority":"10"'; do
				R POST /firewall/rules/0000000000000001 "{$r}"; done`, want: `(?s)(success.*){5}`, same: true},
			{do: `P h1 10.0.0.2`, want: all},
			{do: `P h3 10.0.0.2`, want: all},
			{do: `P h4 10.0.0.3`, want: none},
			{do: `P h1 10.0.0.4`, want: none},
			{do: `R GET /firewall/rules/0000000000000001`, want: `"rule_id": 5`, same: true},
			{do: `grep -c 'Blocked packet' app.log`, want: `^[1-9]`},
			{do: `R DELETE /firewall/rules/0000000000000001 '{"rule_id":"1"}'`, want: `success`, same: true},
			{do: `P h1 10.0.0.2`, want: none},
			{do: `R PUT /firewall/module/disable/0000000000000001`, want: `success`, same: true},
			{do: `P h3 10.0.0.2`, want: none},
		},
	},
	{
		name: "rest_qos", apps: "os_ken.app.rest_qos osken_table1", topology: oneSwitch,
		steps: []step{
			{do: `P h1 10.0.0.2`, want: all}, // by the table after that of the qualities
			{do: `R POST /qos/meter/0000000000000001 '{"meter_id":1,"flags":"PKTPS","bands":[{"type":"DROP","rate":20,"burst_size":20}]}'`, want: `success`},
			{do: `R POST /qos/rules/0000000000000001 '{"match":{"nw_dst":"10.0.0.2","nw_proto":"ICMP"},"actions":{"meter":"1"}}'`, want: `success`, same: true},
			{do: `R POST /qos/rules/0000000000000001 '{"match":{"nw_dst":"10.0.0.3","nw_proto":"ICMP"},"actions":{"mark":"26"}}'`, want: `success`, same: true},
			{do: `R POST /qos/rules/0000000000000001 '{"match":{"nw_dst":"10.0.0.4","nw_proto":"ICMP"},"actions":{"queue":"1"}}'`, want: `success`, same: true},
			{do: `P h1 10.0.0.4`, want: all}, // a queue that no one has set up changes nothing
			{do: `C h3 2 'icmp and ip[1] == 104' 'P h1 10.0.0.3'`, want: `10.0.0.1 > 10.0.0.3: ICMP echo request`},
			{do: `X h1 ping -n -q -c 300 -i 0.002 -W 1 10.0.0.2 || true`, want: ` (1?[0-9]?[0-9]) received`},
			{do: `R GET /qos/rules/0000000000000001`, want: `meter`, same: true},
			{do: `R GET /qos/meter/0000000000000001`, want: `meter_id`},
			{do: `R GET /qos/queue/status/0000000000000001`, want: `0000000000000001`},
			{do: `R DELETE /qos/rules/0000000000000001 '{"qos_id":"all"}'`, want: `success`, same: true},
			{do: `X h1 ping -n -q -c 300 -i 0.002 -W 1 10.0.0.2 || true`, want: ` 300 received`},
		},
	},
	{
		name: "rest_topology", quick: true, apps: "os_ken.app.rest_topology os_ken.app.simple_switch_13",
		topology: "nodes: {\"s[1-3]\": switch, \"h[1-3]\": host}\nlinks: [\"s[1-3] -- h[1-3]\", s1 -- s2, s2 -- s3]\n",
		steps: []step{
			{do: `R GET /v1.0/topology/links | grep -o '"src"' | wc -l`, want: `^4$`},
			{do: `P h1 10.0.0.3`, want: all},
			{do: `R GET /v1.0/topology/hosts | grep -o '"10.0.0.[0-9]"' | sort | uniq`, want: `(?s)0.1.*0.3`},
			{do: `R GET /v1.0/topology/links | python3 -c '
import json, sys
print(sorted((l["src"]["name"], l["dst"]["name"]) for l in json.load(sys.stdin)))'`, want: `s1-eth2.*s2-eth2`, same: true},
			{do: `"$TRIVET" link set s1-s2 down; R GET /v1.0/topology/links | grep -o '"src"' | wc -l`, want: `^2$`},
		},
	},
	{
		name: "simple_switch_lacp_13", apps: "os_ken.app.simple_switch_lacp_13", topology: oneSwitch,
		steps: []step{
			{do: `P h3 10.0.0.4`, want: all},
			{do: `(X h1 python3 ` + "$DATA/lacp.py" + ` h1-eth0 & X h2 python3 $DATA/lacp.py h2-eth0; wait) 2>&1`, want: `(?s)an answer.*an answer`},
			{do: `grep -o 'slave state changed port: . enabled: True' app.log | sort | uniq`, want: `(?s)port: 1.*port: 2`, same: true},
			{do: `grep -o 'slave state changed port: . enabled: False' app.log | sort | uniq`, want: `(?s)port: 1.*port: 2`, same: true}, // 3 s after the last PDU
		},
	},
	{
		name: "simple_monitor_13", apps: "os_ken.app.simple_monitor_13", topology: oneSwitch,
		steps: []step{
			{do: `P h1 10.0.0.2`, want: all},
			{do: `grep -E '^0{15}1 +[0-9a-f]+ ' app.log | awk '$2==1 && $3 ~ /:/ && $5>2' | awk '{print $2, $4}' | sort | uniq`, want: `^1 2$`, same: true},
			{do: `grep -E '^0{15}1 +[0-9a-f]+ +[0-9]+ +[0-9]+ ' app.log | awk '$3>0 && $6>0 {print $2}' | sort | uniq`, want: `(?s)1.*2`},
		},
	},
	{
		name: "faucet: ACLs and mirrors",
		faucet: `acls:
  guard:
    - rule: {dl_type: 0x800, nw_proto: 1, ipv4_dst: 10.0.0.2, actions: {allow: 0}}
    - rule: {dl_type: 0x800, nw_proto: 1, ipv4_dst: 10.0.0.3, actions: {allow: 1, mirror: 4}}
    - rule: {dl_type: 0x800, nw_proto: 17, udp_dst: 9, actions: {allow: 0, output: {port: 4}}}
    - rule: {actions: {allow: 1}}
vlans: {lab: {vid: 100}}
dps:
  s1:
    dp_id: 1
    hardware: Open vSwitch
    interfaces:
      1: {native_vlan: lab, acl_in: guard}
      2: {native_vlan: lab}
      3: {native_vlan: lab}
      4: {output_only: true}
      5: {output_only: true, mirror: 2}
`,
		topology: "nodes: {s1: switch, \"h[1-5]\": host}\nlinks: [\"s1 -- h[1-5]\"]\n",
		steps: []step{
			{do: `P h2 10.0.0.3`, want: all},
			{do: `P h1 10.0.0.3`, want: all},
			{do: `P h1 10.0.0.2`, want: none},
			{do: `C h4 2 'icmp and dst 10.0.0.3' 'P h1 10.0.0.3'`, want: `10.0.0.1 > 10.0.0.3: ICMP echo request`},
			{do: `C h4 1 'udp dst port 9' 'X h1 python3 -c "import socket; socket.socket(2, 2).sendto(bytes(1), (\"10.0.0.3\", 9))"'`, want: `10.0.0.1.* > 10.0.0.3.9: UDP`},
			{do: `C h5 4 icmp 'P h2 10.0.0.3'`, want: `(?s)10.0.0.2 > 10.0.0.3: ICMP echo request.*10.0.0.3 > 10.0.0.2: ICMP echo reply`},
		},
	},
	{
		name: "faucet: VLANs over a trunk", quick: true,
		faucet: `vlans: {red: {vid: 100}, blue: {vid: 200}}
dps:
  s1:
    dp_id: 1
    hardware: Open vSwitch
    interfaces: {1: {native_vlan: red}, 2: {native_vlan: blue}, 3: {tagged_vlans: [red, blue]}}
  s2:
    dp_id: 2
    hardware: Open vSwitch
    interfaces: {1: {native_vlan: red}, 2: {native_vlan: blue}, 3: {tagged_vlans: [red, blue]}}
`,
		topology: "nodes: {\"s[1-2]\": switch, \"h[1-4]\": host}\nlinks: [\"s1 -- h[1-2]\", \"s2 -- h[3-4]\", s1 -- s2]\n",
		steps: []step{
			{do: `P h1 10.0.0.3`, want: all},
			{do: `P h2 10.0.0.4`, want: all},
			{do: `P h1 10.0.0.2`, want: none},
			{do: `P h1 10.0.0.4`, want: none},
		},
	},
	{
		name: "faucet: routes between VLANs",
		faucet: `vlans:
  red: {vid: 100, faucet_vips: [10.1.0.254/24], faucet_mac: "0e:00:00:00:00:01"}
  blue: {vid: 200, faucet_vips: [10.2.0.254/24], faucet_mac: "0e:00:00:00:00:02",
    routes: [{route: {ip_dst: 10.3.0.0/24, ip_gw: 10.2.0.1}}]}
routers: {between: {vlans: [red, blue]}}
dps:
  s1:
    dp_id: 1
    hardware: Open vSwitch
    interfaces: {1: {native_vlan: red}, 2: {native_vlan: blue}, 3: {native_vlan: red}}
`,
		topology: `nodes:
  s1: switch
  h1: {host: {address: 10.1.0.1/24, gateway: 10.1.0.254}}
  h2: {host: {address: [10.2.0.1/24, 10.3.0.1/24], gateway: 10.2.0.254}}
  h3: {host: {address: 10.1.0.3/24, gateway: 10.1.0.254}}
links: ["s1 -- h[1-3]"]
`,
		steps: []step{
			{do: `P h1 10.1.0.254`, want: all},
			{do: `P h1 10.1.0.3`, want: all},
			{do: `P h1 10.2.0.1`, want: all},
			{do: `P h3 10.3.0.1`, want: all},
			{do: `X h1 ping -n -c 1 -W 2 10.2.0.1 || true`, want: `ttl=63`},
		},
	},
	{
		name: "faucet: a stack in a ring",
		faucet: `vlans: {lab: {vid: 100}}
dps:
  s1:
    dp_id: 1
    hardware: Open vSwitch
    stack: {priority: 1}
    interfaces: {1: {native_vlan: lab}, 2: {stack: {dp: s2, port: 2}}, 3: {stack: {dp: s3, port: 3}}}
  s2:
    dp_id: 2
    hardware: Open vSwitch
    interfaces: {1: {native_vlan: lab}, 2: {stack: {dp: s1, port: 2}}, 3: {stack: {dp: s3, port: 2}}}
  s3:
    dp_id: 3
    hardware: Open vSwitch
    interfaces: {1: {native_vlan: lab}, 2: {stack: {dp: s2, port: 3}}, 3: {stack: {dp: s1, port: 3}}}
`,
		topology: "nodes: {\"s[1-3]\": switch, \"h[1-3]\": host}\nlinks: [\"s[1-3] -- h[1-3]\", s1 -- s2, s2 -- s3, s3 -- s1]\n",
		steps: []step{
			{do: `P h1 10.0.0.2; P h2 10.0.0.3; P h3 10.0.0.1`, want: `(?s)( 3 received.*){3}`},
			{do: `"$TRIVET" link set s1-s2 down; P h1 10.0.0.2; P h2 10.0.0.3; P h3 10.0.0.1`, want: `(?s)( 3 received.*){3}`},
			{do: `"$TRIVET" link set s1-s2 up; P h1 10.0.0.2; P h2 10.0.0.3; P h3 10.0.0.1`, want: `(?s)( 3 received.*){3}`},
		},
	},
}

// TestClients proves that a controller that others have written does the same with embedded
// switches as with those of Open vSwitch.
func TestClients(t *testing.T) {
	t.Parallel()
	data, err := filepath.Abs("testdata")
	must(t, err)
	whole := os.Getenv("TRIVET_CLIENTS") != ""
	for _, c := range clients {
		if !c.quick && !whole {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			said := map[string][]string{}
			for _, datapath := range []string{"ovs", "embedded"} {
				if !t.Run(datapath, func(t *testing.T) { said[datapath] = c.drive(newMachine(t), datapath, data) }) {
					return
				}
			}
			for i, s := range c.steps {
				if a, b := said["ovs"][i], said["embedded"][i]; s.same && unordered(a) != unordered(b) {
					t.Errorf("%s\nOpen vSwitch: %s\nembedded:     %s", s.do, a, b)
				}
			}
		})
	}
}

// unordered is a text; if it is JSON, with lists and objects in one order, for entries and their
// fields have none.
func unordered(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	var of func(v any) string
	of = func(v any) string {
		var parts []string
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				parts = append(parts, of(e))
			}
		case map[string]any:
			for k, e := range v {
				parts = append(parts, k+": "+of(e))
			}
		default:
			return fmt.Sprint(v)
		}
		slices.Sort(parts)
		return fmt.Sprint(parts)
	}
	return of(v)
}

// drive runs a client with a lab, and returns what its steps printed.
func (c *client) drive(m *machine, datapath, data string) (said []string) {
	t := m.t
	cache := foreign.PlacesOf(lab.Owner()).Cache
	program := filepath.Join(cache, "os-ken-apps/bin/python") + " " + data + "/osken_run.py 6653 " + c.apps
	if c.faucet != "" {
		m.file("faucet.yaml", c.faucet)
		m.env = append(m.env, "PATH="+cache+"/faucet/bin:"+os.Getenv("PATH")) // faucet looks there for os-ken's program
		program = filepath.Join(cache, "faucet/bin/faucet") + " --ryu-config-file=/dev/null --ryu-ofp-listen-host=127.0.0.1 --ryu-ofp-tcp-listen-port=6653"
	}
	if _, err := os.Stat(strings.Fields(program)[0]); err != nil {
		if os.Getenv("TRIVET_CLIENTS") != "" {
			t.Fatal(err)
		}
		t.Skip(err, " (scripts/peers installs it)")
	}
	m.env = append(m.env, "TRIVET="+trivet, "DATA="+data, "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+data, "FAUCET_CONFIG="+m.dir+"/faucet.yaml",
		"FAUCET_LOG=STDERR", "FAUCET_EXCEPTION_LOG=STDERR", "FAUCET_PROMETHEUS_ADDR=127.0.0.1")
	m.sh(program + " >app.log 2>&1 &")
	eventually(t, "the controller listens", func() bool { return m.sh("ss -Htln 'sport = 6653'") != "" })
	m.up(m.file("lab.yaml", "name: "+m.name+"\n"+c.topology), "--datapath", datapath, "--controller", "tcp:127.0.0.1:6653")
	for _, s := range c.steps {
		want := regexp.MustCompile(s.want)
		var r result
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			r = m.do(m.command("/bin/sh", "-c", stepsPrelude+s.do))
			if want.MatchString(strings.TrimSpace(r.out)) {
				break
			}
			if time.Now().After(end) {
				log := m.sh("tail -n 20 app.log")
				t.Fatalf("%s\nwant %s\ngot  %s%s\nthe controller's log: %s\n", s.do, s.want, r.out, r.err, log)
			}
		}
		said = append(said, strings.TrimSpace(r.out))
	}
	m.ok("down")
	return said
}
