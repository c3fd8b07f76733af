package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"trivet.dev/trivet/internal/dirlock"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/topology"
)

// Limits of the whole machine that labs have raised: what each was before the first lab, and what
// each lab needs. They are restored when the last lab goes down.
type limits map[string]*limit

type limit struct {
	Old  string         `json:"old"`
	Labs map[string]int `json:"labs"` // by their directories
}

// neededLimits computes the limits that a topology needs of the kernel as a whole.
func neededLimits(t *topology.Topology) map[string]int {
	hosts := len(t.NodesOf(topology.Host)) + len(t.NodesOf(topology.Router))
	need := map[string]int{}
	if devices := 2 * len(t.Links); devices > 100 {
		need["net.core.netdev_max_backlog"] = 10_000
	}
	if hosts > 100 {
		need["fs.inotify.max_user_instances"] = 8192
		need["fs.inotify.max_user_watches"] = 524_288
	}
	// All namespaces share one neighbour table, and every host may learn every other.
	neighbours := min(hosts*hosts+1024, 1<<21)
	for _, fam := range []string{"ipv4", "ipv6"} {
		if fam == "ipv6" && t.IPv6 == topology.IPv6Off {
			continue
		}
		need["net."+fam+".neigh.default.gc_thresh1"] = neighbours
		need["net."+fam+".neigh.default.gc_thresh2"] = 2 * neighbours
		need["net."+fam+".neigh.default.gc_thresh3"] = 4 * neighbours
	}
	for _, n := range t.Nodes {
		if n.NAT {
			need[forwarding] = 1
		}
	}
	return need
}

// forwarding makes the machine a router. If it was not one before, it forwards for labs only.
const forwarding = "net.ipv4.ip_forward"

// expedite is a file that makes the kernel's RCU grace periods take microseconds instead of
// milliseconds: the removal of each device and socket waits for one.
const expedite = "/sys/kernel/rcu_expedited"

// hurry expedites grace periods until relax is called, or the lab is gone.
func hurry(lab string) error {
	return updateLimits(func(all limits) { all.need(expedite, lab, 1) })
}

func relax(lab string) error {
	return updateLimits(func(all limits) {
		if lim := all[expedite]; lim != nil {
			delete(lim.Labs, lab)
		}
	})
}

// need records what a lab needs of a limit, if the kernel has that limit.
func (all limits) need(key, lab string, value int) {
	if all[key] == nil {
		old, err := readSysctl(key)
		if err != nil {
			return
		}
		all[key] = &limit{Old: old, Labs: map[string]int{}}
	}
	all[key].Labs[lab] = value
}

// raiseLimits raises limits that are lower than the lab needs, after recording that.
func (l *Lab) raiseLimits() error {
	return updateLimits(func(all limits) {
		for key, value := range neededLimits(l.Topology()) {
			all.need(key, l.Dir, value)
		}
	})
}

// restoreLimits withdraws what the lab needed.
func restoreLimits(lab string) error {
	return updateLimits(func(all limits) {
		for _, lim := range all {
			delete(lim.Labs, lab)
		}
	})
}

// limitsDir is where limits are recorded: always there, as they are the machine's, wherever labs
// keep their files.
const limitsDir = "/run/trivet"

// updateLimits changes the record, writes it, and then applies it to the kernel.
func updateLimits(change func(limits)) error {
	dir, err := dirlock.Make(context.Background(), limitsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	file := filepath.Join(limitsDir, ".limits.json")
	all := limits{}
	if b, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(b, &all); err != nil {
			return err
		}
	}
	change(all)
	if len(all) == 0 {
		dirlock.RemoveMade(limitsDir) // if no lab is in it
		return nil
	}
	if err := saveJSON(file, all); err != nil {
		return err
	}
	if err := all.apply(); err != nil {
		return err
	}
	maps.DeleteFunc(all, func(_ string, lim *limit) bool { return len(lim.Labs) == 0 })
	if len(all) > 0 {
		return saveJSON(file, all)
	}
	err = os.Remove(file)
	dirlock.RemoveMade(limitsDir) // if no lab is in it
	return err
}

// apply sets each limit to the most that any lab needs, or to the old value if none needs it.
func (all limits) apply() error {
	var errs []error
	for key, lim := range all {
		want, _ := strconv.Atoi(lim.Old)
		for _, need := range lim.Labs {
			want = max(want, need)
		}
		forLabs := key == forwarding && lim.Old == "0"
		if forLabs && want > 0 {
			if err := forwardForLabs(); err != nil {
				errs = append(errs, fmt.Errorf("keep the machine from forwarding for others: %w", err))
				continue
			}
		}
		if now, err := readSysctl(key); err == nil && now != strconv.Itoa(want) {
			errs = append(errs, os.WriteFile(sysctlPath(key), []byte(strconv.Itoa(want)), 0o644))
		}
		if forLabs && want == 0 {
			errs = append(errs, deleteTable(forwardTable))
		}
	}
	return errors.Join(errs...)
}

// saveJSON replaces a file atomically: a reader sees the old or the new one.
func saveJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return disk.Replace(file, append(b, '\n'), 0)
}
