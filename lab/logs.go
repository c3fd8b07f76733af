package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// LogFile is a log of a lab.
type LogFile struct {
	Name string // below the lab's directory
	Node string // the node it is about; "": more than one node
}

// Logs lists the existing logs of a lab: the daemon's, Open vSwitch's, those of the nodes' commands
// and routing daemons, and of the foreign controllers and the cluster that it runs.
func Logs(name string) (out []LogFile) {
	for _, pattern := range []string{"daemon.log", "ovs/*.log", "controllers/*.log", "cluster/*.log",
		commandLogs + "/*.log", "routers/*/*.log", "containers/*/*.log", "guests/*/*.log"} {
		found, _ := filepath.Glob(filepath.Join(Dir(name), pattern))
		for _, file := range found {
			log := LogFile{}
			log.Name, _ = filepath.Rel(Dir(name), file)
			switch path := strings.Split(log.Name, "/"); path[0] {
			case commandLogs:
				log.Node = strings.TrimSuffix(path[1], ".log")
			case "routers", "containers", "guests":
				log.Node = path[1]
			}
			out = append(out, log)
		}
	}
	return out
}

// LogText is what was added to a log since it was last read: whole lines.
type LogText struct {
	Name  string   `json:"name" doc:"Below the lab's directory"`
	Node  string   `json:"node,omitempty" doc:"Which it is about"`
	Lines []string `json:"lines"`
	Read  int64    `json:"read" doc:"Up to which byte"`
}

// ReadLogs reads the logs of a lab on this machine, each from the offset up to which it was read
// before. After about most bytes it stops, and leaves the rest for the next call.
func ReadLogs(name string, read map[string]int64, most int64) (out []LogText, err error) {
	for _, l := range Logs(name) {
		if most <= 0 {
			break
		}
		t := LogText{l.Name, l.Node, []string{}, read[l.Name]} // in JSON a list even if it is empty
		err := t.next(filepath.Join(Dir(name), l.Name))
		switch {
		case errors.Is(err, os.ErrPermission):
			return nil, fmt.Errorf("only root may read the logs of lab %s:  sudo trivet logs", name)
		case errors.Is(err, os.ErrNotExist):
			continue // it has just been removed
		case err != nil:
			return nil, err
		}
		out = append(out, t)
		most -= max(0, t.Read-read[l.Name])
	}
	return out, nil
}

func (t *LogText) next(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < t.Read {
		t.Read = 0 // the log was truncated
	}
	if _, err := f.Seek(t.Read, io.SeekStart); err != nil {
		return err
	}
	for text := bufio.NewReader(f); ; {
		line, err := text.ReadString('\n')
		// A line that is incomplete is left until the rest of it is written.
		if err != nil && (err != io.EOF || t.Read > 0 || line == "") {
			if err == io.EOF {
				err = nil
			}
			return err
		}
		t.Read += int64(len(line))
		t.Lines = append(t.Lines, strings.TrimRight(line, "\n"))
	}
}

// SiteLogs are the logs at another site.
type SiteLogs struct {
	Logs    []LogText `json:"logs,omitempty"`
	Problem string    `json:"problem,omitempty" doc:"Why they could not be read"`
}

// logsAtOnce is about how many bytes of logs a part sends in one answer, mostLogs how many of its
// bytes are read at a time.
const logsAtOnce, mostLogs = 16 << 20, 256 << 20

// PartLogs are ReadLogs of a part, in as many answers as that takes.
func (c *Client) PartLogs(ctx context.Context, read map[string]int64) (out []LogText, err error) {
	if read = maps.Clone(read); read == nil {
		read = map[string]int64{}
	}
	for sum := int64(0); ; {
		got, err := call[[]LogText](ctx, c, "POST", "/v1/part/logs", read)
		if err != nil {
			return nil, err
		}
		new := int64(0)
		for _, t := range got {
			for _, line := range t.Lines {
				new += int64(len(line) + 1)
			}
			read[t.Name] = t.Read
			if i := slices.IndexFunc(out, func(o LogText) bool { return o.Name == t.Name }); i >= 0 {
				out[i].Lines, out[i].Read = append(out[i].Lines, t.Lines...), t.Read
			} else {
				out = append(out, t)
			}
		}
		if sum += new; new < logsAtOnce || sum > mostLogs {
			return out, nil
		}
	}
}

// SiteLogs are ReadLogs of all sites but the head, by site.
func (c *Client) SiteLogs(ctx context.Context, read map[string]map[string]int64) (map[string]SiteLogs, error) {
	return call[map[string]SiteLogs](ctx, c, "POST", "/v1/sites/logs", read)
}

// Logs are in memory, like everything below /run. A log that exceeds maxLog is cut to its last
// keepLog bytes.
const (
	maxLog   = 4 << 20
	keepLog  = 1 << 20
	lookEach = 500 * time.Millisecond
)

// boundLogs keeps the lab's logs within maxLog until the lab goes down.
func (d *daemon) boundLogs() {
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-time.After(lookEach):
		}
		for _, l := range Logs(d.state().Name) {
			if err := boundLog(filepath.Join(Dir(d.state().Name), l.Name), maxLog, keepLog); err != nil {
				fmt.Fprintf(os.Stderr, "the log %s could not be kept small: %v\n", l.Name, err)
			}
		}
	}
}

// boundLog cuts a file of more than most bytes to its last keep bytes, from the beginning of a
// line, and notes that in the file. Writers must append (O_APPEND); what they write between the
// reading and the cutting is lost.
func boundLog(file string, most, keep int64) error {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() <= most {
		return nil
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	end := make([]byte, keep)
	n, err := f.ReadAt(end, info.Size()-keep)
	if err != nil {
		return err
	}
	end = end[:n]
	if i := bytes.IndexByte(end, '\n'); i >= 0 {
		end = end[i+1:]
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.Write(append(fmt.Appendf(nil, "[%d bytes before this were dropped at %s]\n", info.Size()-int64(len(end)),
		time.Now().Format(time.RFC3339)), end...))
	return err
}
