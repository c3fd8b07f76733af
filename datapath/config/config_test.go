package config

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestRefused proves that rules as iptables-save writes them pass, and that nothing does by which
// iptables-restore would run a program or load one, or reach beyond the node.
func TestRefused(t *testing.T) {
	check := func(rule string) bool {
		c := topology.ConfigFile{Kind: "iptables", TextFile: topology.TextFile{File: "x", Text: "*filter\n:INPUT ACCEPT [0:0]\n" + rule + "\nCOMMIT\n"}}
		return checkXtables(nil, &topology.Node{Name: "h1"}, c).Err() == nil
	}
	for _, rule := range []string{
		`-A INPUT -s 10.0.0.0/8 -i h1-eth0 -p tcp -m tcp --dport 22 -m comment --comment "a b" -j DROP`,
		`-A INPUT ! -s 10.0.0.1/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
		`:mine - [0:0]`, `-A INPUT -g mine`, `# a comment`,
	} {
		if !check(rule) {
			t.Errorf("refused: %s", rule)
		}
	}
	for _, rule := range []string{
		`-A INPUT -M /tmp/x -j DROP`, `-A INPUT -M/tmp/x -j DROP`, `-A INPUT -fM /tmp/x -j DROP`, `-A INPUT "-M" /tmp/x -j DROP`,
		`-A INPUT --modprobe=/tmp/x -j DROP`, `-A INPUT --modprobe /tmp/x`, `-A INPUT --modp /tmp/x`, `-A INPUT --mo /tmp/x`,
		`-A INPUT -m ../../tmp/x`, `-A INPUT --match ../x`, `-A INPUT --match=../x`, `-A INPUT --jump=../x`, `-A INPUT -m bpf --object-pinned /sys/x`, `-A INPUT -j LED`, `-D INPUT 1`, `-A INPUT '-M' x`, `*nat`,
		`-A INPUT -j "../x"`, `-t nat -A INPUT -j DROP`, `-A INPUT -j DROP -"M" /tmp/x`,
	} {
		if check(rule) {
			t.Errorf("passes: %s", rule)
		}
	}
}

// TestBlocks proves that a text for nft has tables and nothing else, wherever something else is
// written, and none of Trivet's own.
func TestBlocks(t *testing.T) {
	check := func(text string) bool {
		return checkNFT(nil, &topology.Node{Name: "h1"}, topology.ConfigFile{Kind: "nft", TextFile: topology.TextFile{File: "x", Text: text}}).Err() == nil
	}
	if !check("# mine\ntable inet mine {\n\tchain c {\n\t\tcomment \"include { x\" # }\n\t}\n}\ntable ip x {\n}\n") {
		t.Error("a ruleset is refused")
	}
	for _, text := range []string{
		"include \"/etc/passwd\"\n", "table ip x {\n include \"/etc/passwd\"\n}\n", "table ip x {\n};include \"/x\"\n", "table ip x {\n} flush ruleset\n",
		"flush ruleset\n", "table ip trivet-masquerade {\n}\n", "table ip x {\n", "table ip x {\n chain y {\n }; include \"/x\"\n}\n",
		"table ip x {\n comment \"a\n}\n", "table ip x {\n inc\\\nlude \"/x\"\n}\n",
	} {
		if check(text) {
			t.Errorf("passes: %q", text)
		}
	}
}

// TestMerged proves that lines of a file that still hold stay as they are written, with comments,
// that what has gone is left out and what is new comes last; and that entries are the same however
// they are written.
func TestMerged(t *testing.T) {
	have := entries("priority=5,tcp,tp_dst=80,actions=drop\npriority=7,actions=output:2\n")
	got := merged("# web\ntcp, priority=5 tp_dst=80 actions=drop\npriority=6,actions=drop\n", have)
	if want := "# web\ntcp, priority=5 tp_dst=80 actions=drop\npriority=7,actions=output:2\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if e := entryOf("cookie=0x5, table=0, priority=3,ip actions=learn(table=1,priority=2)"); e.cookieOf() != 5 || !strings.HasPrefix(e.gone, "table=0,") {
		t.Errorf("%+v", e)
	}
}
