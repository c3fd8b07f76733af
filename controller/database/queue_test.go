package database

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proves that a full queue drops what comes, counts it and says so, that nobody waits for
// that, and that of what there is room for nothing is lost.
func TestOverflow(t *testing.T) {
	d, log := open(t, filepath.Join(t.TempDir(), "db"), Options{QueueRows: 500})
	release := d.hold(t)
	for i := range 800 {
		d.AddLoads([]Load{{Time: noon, Port: uint32(i)}})
		d.PutHost(Host{MAC: "the same"}) // state of one thing: only the latest waits
	}
	if s := d.Stats(); s.Queued != 501 || s.Dropped != 300 {
		t.Errorf("while nothing is written: %+v", s)
	}
	release()
	d.Flush()
	if got := count(t, d, "SELECT count(*) FROM port_load"); got != 500 {
		t.Errorf("%d rows written", got)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if s := d.Stats(); s.Queued != 0 || s.Written != 501 || s.Dropped != 300 || s.Failed != 0 {
		t.Errorf("in the end: %+v", s)
	}
	if !strings.Contains(log.String(), "dropped=300") {
		t.Errorf("the log says %q", log)
	}
}

// hold keeps the writer busy until the function that it returns is called.
func (d *DB) hold(t *testing.T) (release func()) {
	held, free := make(chan bool), make(chan bool)
	go func() {
		if err := d.now(func(*writer) { held <- true; <-free }); err != nil {
			t.Error(err)
		}
	}()
	<-held
	return func() { close(free) }
}

// Proves that while another process writes, rows wait and nothing is lost; who reads is not held
// up.
func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	d, _ := open(t, path, Options{})
	other, err := sql.Open("sqlite", source(path))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	conn, err := other.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	d.AddLoads(make([]Load, 2500))
	for range 60 { // longer than SQLite's own patience
		must(d.Switches())(t)
		time.Sleep(50 * time.Millisecond)
	}
	if s := d.Stats(); s.Written != 0 || s.Failed != 0 {
		t.Errorf("while another writes: %+v", s)
	}
	if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	d.Flush()
	if s := d.Stats(); s.Written != 2500 || s.Failed != 0 || s.Dropped != 0 {
		t.Errorf("afterwards: %+v", s)
	}
}

// Proves that readers, of this process and sqlite3, see whole snapshots while they are replaced
// all the time, and that user flows are written meanwhile.
func TestReadersBesideWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	d, _ := open(t, path, Options{})
	const flows = 200
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			snapshot := make([]Flow, flows)
			for j := range snapshot {
				snapshot[j] = Flow{Priority: uint16(j), Match: fmt.Sprint("in_port=", i), Packets: uint64(i)}
			}
			d.ReplaceFlows(1, noon, snapshot)
			d.Flush()
		}
	})
	for count(t, d, "SELECT count(*) FROM flows") == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		group.Go(func() {
			for range 30 {
				var rows, generations int
				if err := d.read.QueryRow("SELECT count(*), count(DISTINCT packets) FROM flows").Scan(&rows, &generations); err != nil || rows != flows || generations != 1 {
					t.Errorf("%d rows of %d snapshots (%v)", rows, generations, err)
				}
			}
		})
	}
	if program, err := exec.LookPath("sqlite3"); err == nil {
		for range 5 {
			out, err := exec.Command(program, "-cmd", ".timeout 10000", path, "SELECT count(*), count(DISTINCT packets) FROM flows").CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(flows, "|1") {
				t.Errorf("sqlite3: %v: %s", err, out)
			}
		}
	}
	for i := range 20 {
		d.put(t, i)
	}
	time.Sleep(100 * time.Millisecond)
	close(stop)
	group.Wait()
	if got := count(t, d, "SELECT count(*) FROM user_flows"); got != 20 {
		t.Errorf("%d user flows", got)
	}
}

// Proves that rows that are too old or too many go, the oldest first and not all at once, of
// the time series only.
func TestRetention(t *testing.T) {
	d, _ := open(t, filepath.Join(t.TempDir(), "db"), Options{Retention: time.Hour, MaxRows: 5000})
	now := time.Now()
	d.put(t, 1)
	old := make([]Load, 3000)
	for i := range old {
		old[i].Time = now.Add(-2 * time.Hour)
	}
	release := d.hold(t)
	d.AddLoads(old)
	d.AddLoads([]Load{{Time: now, Port: 77}})
	d.AddPackets([]PacketsIn{{Time: now.Add(-2 * time.Hour)}, {Time: now}})
	release()
	d.Flush()
	if got := count(t, d, "SELECT count(*) FROM port_load"); got != 1 {
		t.Errorf("%d rows of the load, one is of the last hour", got)
	}
	if got := count(t, d, "SELECT count(*) FROM packets_in"); got != 1 {
		t.Errorf("%d rows of packets, one is of the last hour", got)
	}
	many := make([]Load, 8000)
	for i := range many {
		many[i] = Load{Time: now, Port: 1000 + uint32(i)}
	}
	d.AddLoads(many)
	d.Flush()
	rows, first := count(t, d, "SELECT count(*) FROM port_load"), count(t, d, "SELECT min(port) FROM port_load")
	if rows != 5000 || first != 1000+3000 {
		t.Errorf("%d rows from port %d on", rows, first)
	}
	if got := count(t, d, "SELECT count(*) FROM user_flows"); got != 1 {
		t.Errorf("%d user flows", got)
	}
	before := count(t, d, "SELECT count(*) FROM port_load")
	if err := d.now(func(w *writer) { w.trim("port_load", 100, 10, 0) }); err != nil {
		t.Fatal(err)
	}
	if got := count(t, d, "SELECT count(*) FROM port_load"); before-got != 100 {
		t.Errorf("a step of 100 deleted %d rows", before-got)
	}
}

// Proves that the writer goes on after rows that SQLite does not take, and says how many are lost.
func TestFailure(t *testing.T) {
	d, log := open(t, filepath.Join(t.TempDir(), "db"), Options{})
	d.enqueue("", 3, func(w *writer) { w.do("INSERT INTO no_table VALUES (1)") })
	d.Flush()
	d.AddLoads([]Load{{Time: noon}})
	d.Flush()
	if s := d.Stats(); s.Failed != 3 || s.Written != 1 {
		t.Errorf("%+v", s)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "rows=3") || !strings.Contains(log.String(), "no such table") {
		t.Errorf("the log says %q", log)
	}
}

// How long a row of the load takes: what 1,000 switches of four ports write in a second is 4,000.
func BenchmarkAddLoads(b *testing.B) {
	d, err := Open(filepath.Join(b.TempDir(), "db"), Options{QueueRows: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	rows := make([]Load, 1000)
	for i := range rows {
		rows[i] = Load{Time: noon, Interval: time.Second, Switch: uint64(i), Port: 2, RxBytes: 1 << 40, TxBytes: 1 << 40, RxRate: 1e9 / 3, TxRate: 1e9 / 7}
	}
	b.ResetTimer()
	for i := 0; i < b.N; i += len(rows) {
		d.AddLoads(rows)
		d.Flush()
	}
}

// How long a user waits for a flow that is durable.
func BenchmarkKeep(b *testing.B) {
	d, err := Open(filepath.Join(b.TempDir(), "db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	for i := range b.N {
		if err := d.keepFlow(i); err != nil {
			b.Fatal(err)
		}
	}
}
