package topology

import (
	"strings"
	"testing"
)

// TestBalanceChoose proves that a file says when paths are chosen in one of three ways, and nothing
// beside that which does not hold then; and that a setting that differs in it is written
// differently, by which apply and other formats tell.
func TestBalanceChoose(t *testing.T) {
	tenth := Fraction(0.1)
	for _, c := range []struct {
		balance Balance
		want    string
	}{
		{Balance{By: BalanceLoad, Choose: ChooseOnce}, ""},
		{Balance{By: BalanceLoad, Choose: ChooseAlways, Per: PerFlow, K1: &tenth}, ""},
		{Balance{By: BalanceLoad, Choose: ChooseBusy, Hysteresis: &tenth, Moves: 3}, ""},
		{Balance{By: BalanceLoad, Choose: "never"}, `no path is chosen "never"; choose busy, once or always`},
		{Balance{By: BalanceLoad, Choose: ChooseOnce, Hysteresis: &tenth}, "with choose: once there is neither a hysteresis nor a limit of moves"},
		{Balance{By: BalanceLoad, Choose: ChooseAlways, Moves: 1}, "with choose: always there is neither"},
		{Balance{Choose: ChooseOnce}, "choose, moves and largest belong to by: load"},
	} {
		top := &Topology{Balance: &c.balance}
		top.AddNode(Router, "r1")
		_, problems := Resolve(top, Defaults{Datapath: Embedded, Controller: ControllerTrivet})
		if err := problems.Err(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(problems.Error(), c.want) {
			t.Errorf("%s: %v, want %q", &c.balance, err, c.want)
		}
	}
	if got := (&Balance{By: BalanceLoad, Choose: ChooseOnce}).String(); got != "{by: load, choose: once}" {
		t.Errorf("written %s", got)
	}
}
