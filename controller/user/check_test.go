package user

import (
	"strings"
	"testing"

	"trivet.dev/trivet/openflow"
)

// FuzzParse proves that whatever a user writes is refused or an entry that is the same when it is
// written to the database and read again: with no cookie of the user's, in one table, and with
// something to do.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"priority=100,ip,nw_dst=10.0.0.2,actions=drop", "actions=", "table=255,actions=drop", "cookie=1,actions=drop",
		"tcp6,ipv6_dst=fd00::/64,tp_dst=80,hard_timeout=3,actions=write_metadata:1/3,goto_table:2", "actions=output:1,actions=drop", "ip",
		"in_port=1,dl_vlan=3,actions=pop_vlan,set_field:02:00:00:00:00:01->eth_dst,group:4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		if m.Cookie != 0 || m.Table == openflow.TableAll || !strings.Contains(text, "actions=") {
			t.Fatalf("%q is accepted: %v", text, m)
		}
		stored := openflow.FormatFlow(m)
		again, err := Parse(stored)
		if err != nil {
			t.Fatalf("%q is stored as %q, which cannot be read: %v", text, stored, err)
		}
		if got := openflow.FormatFlow(again); got != stored {
			t.Fatalf("%q is stored as %q and read as %q", text, stored, got)
		}
	})
}
