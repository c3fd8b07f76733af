package database

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// open opens a database that the test closes, and returns its log.
func open(t *testing.T, path string, o Options) (*DB, *logged) {
	t.Helper()
	log := &logged{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	d, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, log
}

// logged is a log that can be read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}

// count is a query that returns one number.
func count(t *testing.T, d *DB, text string, args ...any) (n int) {
	t.Helper()
	if err := d.read.QueryRow(text, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

var noon = time.UnixMicro(1_900_000_000_123_456) // in the future: retention leaves it

// Proves that all that a restart needs comes back as it was written, through Close and Open,
// and that the file is its owner's alone, with its log.
func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a file #1 %41?.db")
	d, _ := open(t, path, Options{})
	switches := []Switch{
		{DPID: 7, Name: "s1", Tables: 254, Buffers: 256, Up: true, Since: noon},
		{DPID: math.MaxUint64, Tables: 1, Since: noon},
	}
	for _, s := range switches {
		d.PutSwitch(s)
		d.NameSwitch(s.DPID, s.Name)
	}
	ports := []Port{{Number: 1, Name: "s1-eth1", MAC: "02:00:00:00:00:01", Up: true, Speed: 10e9}, {Number: 0xffffff00, Name: "far"}}
	d.ReplacePorts(7, ports)
	hosts := []Host{{MAC: "02:00:00:00:00:09", Addresses: []string{"10.0.0.1", "fe80::1"}, Switch: 7, Port: 1, LastSeen: noon}}
	d.PutHost(hosts[0])
	d.PutHost(Host{MAC: "gone"})
	d.DeleteHost("gone")
	for _, part := range []string{"", "-wal", "-lock"} {
		if s, err := os.Stat(path + part); err != nil || s.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path+part, s.Mode(), err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Error("the log is not written back by Close")
	}

	d, log := open(t, path, Options{})
	equal(t, "switches", must(d.Switches())(t), switches)
	equal(t, "ports", must(d.Ports(7))(t), ports)
	equal(t, "hosts", must(d.Hosts())(t), hosts)
	if d.SetAside() != "" || log.String() != "" {
		t.Errorf("set aside %q, log %q", d.SetAside(), log)
	}
}

// Proves that links that are no longer there are remembered as down since then, that one that
// stays keeps its time, and that a port has one link at a time.
func TestLinks(t *testing.T) {
	d, _ := open(t, filepath.Join(t.TempDir(), "db"), Options{})
	states := func() (out []Link) {
		d.Flush()
		return must(d.Links())(t)
	}
	a, b := Link{From: 1, FromPort: 1, To: 2, ToPort: 1}, Link{From: 2, FromPort: 1, To: 1, ToPort: 1}
	d.ReplaceLinks([]Link{a, b})
	first := states()
	if len(first) != 2 || !first[0].Up || !first[1].Up {
		t.Fatalf("links %+v", first)
	}
	d.ReplaceLinks([]Link{a})
	second := states()
	if len(second) != 2 || second[0] != first[0] || second[1].Up || !second[1].Since.After(first[1].Since) {
		t.Errorf("after one direction was lost: %+v, before %+v", second, first)
	}
	c := Link{From: 1, FromPort: 1, To: 3, ToPort: 9}
	d.ReplaceLinks([]Link{c, b})
	third := states()
	if len(third) != 2 || third[0].To != 3 || !third[0].Since.After(first[0].Since) || !third[1].Up || !third[1].Since.After(second[1].Since) {
		t.Errorf("after a cable was moved: %+v", third)
	}
	d.ReplaceLinks(nil)
	if last := states(); len(last) != 2 || last[0].Up || last[1].Up {
		t.Errorf("without links: %+v", last)
	}
	d.SetLink(a)
	d.SetLink(Link{From: 2, FromPort: 1})
	if single := states(); len(single) != 2 || !single[0].Up || single[0].To != 2 || single[1].Up || single[1].Since != states()[1].Since {
		t.Errorf("after one link was set and one, which was down, taken away: %+v", single)
	}
	d.SetLink(Link{From: 1, FromPort: 1})
	if gone := states(); len(gone) != 2 || gone[0].Up || gone[0].To != 2 {
		t.Errorf("after the one link was taken away: %+v", gone)
	}
}

// Proves that the snapshots of flows, groups and routes replace each other, of one switch or
// router only, and how values are written that SQLite has no type for.
func TestSnapshots(t *testing.T) {
	d, _ := open(t, filepath.Join(t.TempDir(), "db"), Options{})
	flows := []Flow{
		{Table: 1, Priority: 2, Match: "ip", Instructions: "output:1", Cookie: math.MaxUint64, App: "routing", Packets: 3, Bytes: NoCounter, Duration: 1500 * time.Millisecond},
		{Match: "", Instructions: "drop", Packets: math.MaxUint64 - 1},
	}
	d.NameSwitch(1, "s1")
	d.CountFlows(1, 2)
	d.PutSwitch(Switch{DPID: 1, Up: true, Since: noon})
	d.ReplaceFlows(1, noon, append(flows, flows...)) // a switch that says the same twice
	d.ReplaceFlows(2, noon, flows)
	d.ReplaceGroups(1, noon, []Group{{ID: 9, Type: "select", Buckets: []string{"output:1", "output:2"}, Packets: 1, Bytes: 2}})
	d.ReplaceRoutes("r1", []Route{{Prefix: "10.0.0.0/8", NextHops: []string{"10.0.0.1"}, Metric: 20, Source: "ospf"}})
	d.Flush()
	for text, want := range map[string]int{
		"SELECT count(*) FROM flows WHERE switch = '0000000000000001'":                                                                            2,
		"SELECT count(*) FROM flows WHERE switch = '0000000000000002'":                                                                            2,
		"SELECT count(*) FROM flows WHERE cookie = '0xffffffffffffffff' AND app = 'routing' AND packets = 3 AND bytes IS NULL AND duration = 1.5": 2,
		"SELECT count(*) FROM flows WHERE packets = 9223372036854775807 AND match = ''":                                                           2,
		"SELECT count(*) FROM switches WHERE name = 's1' AND up = 1 AND flows = 2":                                                                1,
		"SELECT count(*) FROM groups, json_each(buckets) WHERE group_id = 9 AND json_each.value LIKE 'output:%'":                                  2,
		"SELECT count(*) FROM routes WHERE router = 'r1' AND next_hops = '[\"10.0.0.1\"]'":                                                        1,
	} {
		if got := count(t, d, text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	d.ReplaceFlows(1, noon, flows[:1])
	d.ReplaceRoutes("r1", nil)
	d.Flush()
	if got := count(t, d, "SELECT count(*) FROM flows"); got != 3 {
		t.Errorf("%d flows after one was removed", got)
	}
	if got := count(t, d, "SELECT count(*) FROM routes"); got != 0 {
		t.Errorf("%d routes of a router without", got)
	}
}

// Proves that rows of the load come back as they were, with what is not known, and in order.
func TestLoads(t *testing.T) {
	d, _ := open(t, filepath.Join(t.TempDir(), "db"), Options{})
	rows := []Load{
		{Time: noon, Interval: time.Second, Switch: 1, Port: 2, RxPackets: 1, TxPackets: 2, RxBytes: 3, TxBytes: 4, RxDropped: 5, TxDropped: 6,
			RxErrors: 7, TxErrors: NoCounter, RxRate: 8.5, TxRate: 9.5, Utilisation: 0.25},
		{Time: noon.Add(time.Second), Switch: 1, Port: 2},
		{Time: noon.Add(2 * time.Second), Switch: 1, Port: 2},
	}
	d.AddLoads(rows)
	d.AddLoads([]Load{{Time: noon, Switch: 1, Port: 3}, {Time: noon, Switch: 2, Port: 2}})
	d.Flush()
	got := must(d.Loads(1, 2, noon, noon.Add(2*time.Second), 10))(t)
	if len(got) != 2 || !math.IsNaN(got[1].Utilisation) {
		t.Fatalf("rows %+v", got)
	}
	got[1].Utilisation = 0
	equal(t, "rows", got, rows[:2])
	if got := must(d.Loads(1, 2, noon, noon.Add(time.Hour), 1))(t); len(got) != 1 {
		t.Errorf("%d rows, the limit is 1", len(got))
	}
}

// Proves that each table and each script of the schema is reached: the version of a new file is
// that of the last.
func TestVersion(t *testing.T) {
	d, _ := open(t, filepath.Join(t.TempDir(), "db"), Options{})
	if got := count(t, d, "PRAGMA user_version"); got != len(migrations()) || got < 1 {
		t.Errorf("version %d, %d scripts", got, len(migrations()))
	}
	var text strings.Builder
	rows, err := d.read.Query("SELECT sql FROM sqlite_schema WHERE name IN ('port_load', 'flows')")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		text.WriteString(s)
	}
	if !strings.Contains(text.String(), "-- bit/s") {
		t.Errorf("the schema in the file has lost its comments:\n%s", text.String())
	}
}

// Proves that switches which come once and never again, as with invented datapath ids, do not fill
// the file: of those without a name about the latest thousand are remembered, with their ports;
// those with a name, and those that are here, all are.
func TestManySwitches(t *testing.T) {
	d, _ := open(t, filepath.Join(t.TempDir(), "c.db"), Options{})
	d.NameSwitch(1, "s1")
	d.PutSwitch(Switch{DPID: 1, Since: time.Unix(1, 0)})
	d.PutSwitch(Switch{DPID: 2, Up: true, Since: time.Unix(1, 0)})
	for i := range uint64(1500) {
		d.ReplacePorts(100+i, []Port{{Number: 1}})
		d.PutSwitch(Switch{DPID: 100 + i, Since: time.Unix(int64(100+i), 0)})
		if i%100 == 0 {
			d.Flush()
		}
	}
	d.Flush()
	all := must(d.Switches())(t)
	if len(all) < 1002 || len(all) > 1102 || all[0].DPID != 1 || all[1].DPID != 2 || all[2].DPID < 500 {
		t.Errorf("%d switches, first %v", len(all), all[:3])
	}
	if old, late := must(d.Ports(101))(t), must(d.Ports(1599))(t); len(old) != 0 || len(late) != 1 {
		t.Errorf("ports %v and %v", old, late)
	}
}
