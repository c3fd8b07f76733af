package openflow

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A match that is written is read as the same match.
func TestTextMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genMatch(t)
		for o := range m.All() {
			if o.opaque() {
				return
			}
		}
		back, err := ParseMatch(m.String())
		if err != nil || back != m {
			t.Fatalf("%v\n%v\n%v", m, back, err)
		}
	})
}

// Actions that are written are read as the same actions.
func TestTextActions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		actions := slices.DeleteFunc(genActions(t), func(a Action) bool { return a.Type == ActionExperimenter })
		for i := range actions {
			if actions[i].Port != PortController {
				actions[i].MaxLen = 0
			}
		}
		back, err := ParseActions(FormatActions(actions))
		if err != nil || !slices.Equal(back, actions) {
			t.Fatalf("%v\n%v\n%v", actions, back, err)
		}
	})
}

// What ovs-ofctl users write is understood.
func TestParseFlow(t *testing.T) {
	for text, want := range map[string]string{
		"in_port=2 actions=3": "priority=32768,in_port=2,actions=output:3",
		"actions=":            "priority=32768,actions=drop",
		"priority=5,ip,nw_dst=10.0.0.0/255.0.0.0 actions=local": "priority=5,ip,nw_dst=10.0.0.0/8,actions=LOCAL",
		"tp_dst=53,nw_proto=17,dl_type=0x800,actions=drop":      "priority=32768,udp,tp_dst=53,actions=drop",
		"arp,nw_dst=10.0.0.1,nw_proto=2,actions=normal":         "priority=32768,arp,arp_op=2,arp_tpa=10.0.0.1,actions=NORMAL",
		"ip,nw_tos=184,actions=mod_nw_dst:10.0.0.9,mod_dl_src:02:00:00:00:00:01,5": "priority=32768,ip,ip_dscp=46," +
			"actions=set_field:10.0.0.9->ip_dst,set_field:02:00:00:00:00:01->eth_src,output:5",
		"tcp,actions=mod_tp_dst:80,controller":               "priority=32768,tcp,actions=set_field:80->tcp_dst,CONTROLLER:65535",
		"dl_vlan=0xffff,actions=drop":                        "priority=32768,vlan_tci=0x0000/0x1fff,actions=drop",
		"vlan_tci=0xb064,actions=strip_vlan":                 "priority=32768,dl_vlan=100,dl_vlan_pcp=5,actions=pop_vlan",
		"cookie=0x1/-1,table=all,out_port=3,out_group=4":     "table=all,cookie=0x1/0xffffffffffffffff,out_port=3,out_group=4,priority=32768,actions=drop",
		"check_overlap,reset_counts,actions=set_mpls_ttl:64": "check_overlap,reset_counts,priority=32768,actions=set_mpls_ttl(64)",
	} {
		m, err := ParseFlow(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := FormatFlow(m); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// What cannot be understood is told with its column, all of it at once.
func TestParseFlowErrors(t *testing.T) {
	for text, want := range map[string][]string{
		"dl_tpye=5,priority=x,actions=outptu:3": {"column 1: dl_tpye: no such field", `column 11: "x" is not a number`, "column 30: outptu: no such action"},
		"tp_dst=80,actions=drop":                {"column 1: tp_dst: first name the protocol it belongs to (tcp, udp, sctp)"},
		"nw_src=10.0.0.0/33,ip":                 {"column 1: /33: a prefix of ipv4_src has 0 to 32 bits"},
		"tcp_dst=80,ip":                         {"tcp_dst needs another field before it: tcp"},
		"in_port=1/2":                           {"in_port cannot have a mask"},
		"nw_src=::1,ip":                         {`"::1" is not an address of 32 bits`},
		"dl_vlan=5000":                          {"VLAN 5000: write 0 to 4095"},
		"ip,dl_type=0x806":                      {"eth_type is given twice"},
		"actions=set_field:1":                   {"write set_field:value->field"},
		"actions=set_field:1/1->metadata":       {"cannot set part of a field"},
		"actions=write_actions(goto_table:1)":   {"goto_table:1 is an instruction"},
		"dl_src=02:00:00":                       {"is not an Ethernet address"},
	} {
		_, err := ParseFlow(text)
		if err == nil {
			t.Errorf("%s: understood", text)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v\nwant %s", text, err, w)
			}
		}
	}
}

// Whatever the text: no panic; and a flow that was understood is written as one that means the
// same.
func FuzzParseFlow(f *testing.F) {
	f.Add("table=1,priority=2,tcp,in_port=3,nw_src=10.0.0.0/8,tp_dst=80,actions=set_field:1->metadata,write_actions(group:1),goto_table:2")
	f.Add("vlan_tci=0x1005/0x1fff,dl_vlan_pcp=3,cookie=1/2,actions=meter:3,CONTROLLER:5,experimenter:5")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseFlow(text)
		if err != nil {
			return
		}
		written := FormatFlow(m)
		back, err := ParseFlow(written)
		if err != nil {
			t.Fatalf("%s\n%s\n%v", text, written, err)
		}
		if again := FormatFlow(back); again != written {
			t.Fatalf("%s\n%s\n%s", text, written, again)
		}
	})
}
