package topology

import (
	"strings"
	"testing"
)

// TestLearning proves that switches learn in one of two ways, and not by flows where load is to be
// moved.
func TestLearning(t *testing.T) {
	for _, c := range []struct {
		learning Routing
		balance  *Balance
		want     string
	}{
		{"", nil, ""}, {Proactive, nil, ""}, {Reactive, nil, ""}, {Reactive, &Balance{By: BalanceECMP}, ""},
		{"sometimes", nil, "choose proactive or reactive"},
		{Reactive, &Balance{By: BalanceLoad}, "leave one of them out"},
	} {
		top := &Topology{Learning: c.learning, Balance: c.balance}
		top.AddNode(Switch, "s1")
		_, problems := Resolve(top, Defaults{Datapath: Embedded, Controller: ControllerTrivet})
		if err := problems.Err(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(problems.Error(), c.want) {
			t.Errorf("learning %q, balance %v: %v, want %q", c.learning, c.balance, err, c.want)
		}
	}
}
