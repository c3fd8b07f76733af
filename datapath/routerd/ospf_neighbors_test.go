package routerd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestNeighbors proves that the answers of FRR 8.4 and BIRD 2.0 (taken from a lab) are read, and
// that an answer that is not one, as from a daemon that does not run, is an error that quotes it.
func TestNeighbors(t *testing.T) {
	answers := map[string]string{
		"vtysh": `{"neighbors":{"0.0.0.1":[{"ifaceAddress":"172.16.0.1","areaId":"0.0.0.0","ifaceName":"r2-eth1","nbrState":"Full\/-",
			"routerDesignatedId":"0.0.0.0","routerDesignatedBackupId":"0.0.0.0","routerDeadIntervalTimerDueMsec":2491}],
			"0.0.0.3":[{"ifaceAddress":"172.16.0.10","ifaceName":"r2-eth3","nbrState":"2-Way\/DROther","routerDesignatedId":"172.16.0.11"}]}}`,
		"birdc show ospf neighbors": "BIRD 2.0.12 ready.\nospf1:\nRouter ID   \tPri\t     State     \tDTime\tInterface  Router IP\n" +
			"0.0.0.2     \t  1\tFull/PtP  \t 2.762\tr3-eth1    172.16.0.5\n0.0.0.2     \t  1\tLoading/BDR  \t 2.762\tr3-eth2    172.16.0.9\n",
		"birdc show ospf interface": "BIRD 2.0.12 ready.\nospf1:\nInterface r3-eth1 (172.16.0.4/30)\n\tType: ptp\nInterface r3-eth2 (172.16.0.8/30)\n\tType: broadcast\n" +
			"\tDesignated router (ID): 0.0.0.3\n\tDesignated router (IP): 172.16.0.10\n\tBackup designated router (ID): 0.0.0.2\n\tBackup designated router (IP): 172.16.0.9\n",
	}
	ask := func(command ...string) (string, error) {
		if command[0] == "vtysh" {
			return answers["vtysh"], nil
		}
		return answers[strings.Join(command, " ")], nil
	}
	for d, want := range map[topology.Datapath]string{
		topology.FRR:  "[{0.0.0.1 172.16.0.1 invalid IP r2-eth1 Full 2.491} {0.0.0.3 172.16.0.10 172.16.0.11 r2-eth3 2-Way -1}]",
		topology.BIRD: "[{0.0.0.2 172.16.0.5 invalid IP r3-eth1 Full 2.762} {0.0.0.2 172.16.0.9 172.16.0.10 r3-eth2 Loading 2.762}]",
	} {
		list, err := OSPFNeighbors(d, ask)
		slices.SortFunc(list, func(a, b OSPFNeighbor) int { return strings.Compare(a.Interface, b.Interface) })
		if got := fmt.Sprint(list); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", d, got, err, want)
		}
	}
	answers["vtysh"] = "ospfd is not running\n"
	if _, err := OSPFNeighbors(topology.FRR, ask); err == nil || !strings.Contains(err.Error(), "ospfd is not running") {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := OSPFNeighbors(topology.BIRD, func(...string) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}
