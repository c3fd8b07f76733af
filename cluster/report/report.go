// Package report carries the load reports of a cluster's members over RabbitMQ (AMQP 0-9-1): each
// member reports its load every few seconds, and every member receives all reports. Nothing waits
// for the broker: if it is unavailable, full or silent, reports are lost.
//
// Reports are authenticated by a key that the cluster has in its store, so that users of the broker
// cannot report for a member.
package report

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"trivet.dev/trivet/controller/store"
)

// Load is the load of a member.
type Load struct {
	Nodes      int    `json:"nodes"`      // routing nodes: switches of which it is master
	Addresses  int    `json:"addresses"`  // that it answers for
	Southbound uint64 `json:"southbound"` // bytes of OpenFlow in the last 30 s, both directions

	// Heaviest are the switches with more than their share, up to MostSwitches.
	Heaviest []Switch `json:"heaviest,omitempty"`
}

// Switch is one switch's part of a load.
type Switch struct {
	DPID       uint64 `json:"dpid"`
	Addresses  int    `json:"addresses"`
	Southbound uint64 `json:"southbound"`
}

// Report is a member's report of its load: message I of the paper.
type Report struct {
	Member      string    `json:"member"`
	Incarnation int64     `json:"incarnation"` // of the member's process: a later process has a greater one
	Sequence    uint64    `json:"sequence"`    // of the report, within the process
	When        time.Time `json:"when"`        // by the member's clock: for display only
	Load
}

// After reports whether a report is newer than another of the same member.
func (r Report) After(other Report) bool {
	if r.Incarnation != other.Incarnation {
		return r.Incarnation > other.Incarnation
	}
	return r.Sequence > other.Sequence
}

// Limits on plausible reports.
const (
	MostSwitches = 32
	mostBytes    = 8 << 10
	mostNodes    = 10_000_000
	mostAddress  = 100_000_000
	mostTraffic  = 1 << 50 // bytes in 30 s
)

var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// check reports what is impossible in a report.
func (r *Report) check() error {
	switch {
	case !names.MatchString(r.Member):
		return fmt.Errorf("%.80q is not a member's name", r.Member)
	case r.Incarnation < 1 || r.Sequence < 1:
		return errors.New("it is not numbered")
	case r.Nodes < 0 || r.Nodes > mostNodes || r.Addresses < 0 || r.Addresses > mostAddress ||
		r.Southbound > mostTraffic:
		return fmt.Errorf("implausible load: %d nodes, %d addresses, %d bytes in 30 s", r.Nodes, r.Addresses,
			r.Southbound)
	case len(r.Heaviest) > MostSwitches:
		return fmt.Errorf("%d switches are listed, more than %d", len(r.Heaviest), MostSwitches)
	}
	for _, s := range r.Heaviest {
		if s.Addresses < 0 || s.Addresses > r.Addresses || s.Southbound > r.Southbound {
			return fmt.Errorf("switch %016x has more than the member", s.DPID)
		}
	}
	return nil
}

// Key authenticates reports.
type Key []byte

const keyBytes = 32

// ClusterKey returns the key that a cluster has in its store; the first caller creates it.
func ClusterKey(ctx context.Context, s store.Store) (Key, error) {
	for {
		e, err := s.Get(ctx, "cluster/key")
		switch {
		case err != nil:
			return nil, err
		case e.Revision != 0 && len(e.Value) != keyBytes:
			return nil, fmt.Errorf("cluster/key in the store has %d bytes, not %d: delete it, and members will create another", len(e.Value), keyBytes)
		case e.Revision != 0:
			return e.Value, nil
		}
		fresh := make([]byte, keyBytes)
		_, _ = rand.Read(fresh) // cannot fail
		err = s.Commit(ctx, []store.Condition{e.Is()}, store.Put(e.Key, fresh))
		if err != nil && !errors.Is(err, store.ErrChanged) {
			return nil, err
		}
	}
}

func (k Key) sum(text []byte) []byte {
	h := hmac.New(sha256.New, k)
	h.Write([]byte("trivet load report\n"))
	h.Write(text)
	return h.Sum(nil)
}

// exchange is the name of the cluster's exchange, because clusters may share a broker.
func (k Key) exchange() string {
	return fmt.Sprintf("trivet.reports.%x", k.sum([]byte("exchange"))[:6])
}

// Encode encodes a report: its authentication code (HMAC-SHA256), followed by JSON.
func (k Key) Encode(r Report) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("report of %.80q: %w", r.Member, err)
	}
	text, err := json.Marshal(r)
	return append(k.sum(text), text...), err
}

// Decode decodes a report, after verifying its authentication code.
func (k Key) Decode(b []byte) (r Report, err error) {
	if len(b) < sha256.Size || len(b) > mostBytes {
		return r, fmt.Errorf("%d bytes are no report", len(b))
	}
	text := b[sha256.Size:]
	if !hmac.Equal(b[:sha256.Size], k.sum(text)) {
		return r, errors.New("it is not signed by the cluster's key")
	}
	return parse(text)
}

// parse decodes JSON that is known to be a member's, possibly of another version.
func parse(text []byte) (r Report, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&r); err != nil {
		return Report{}, err
	}
	if d.More() {
		return Report{}, errors.New("something follows the report")
	}
	if err := r.check(); err != nil {
		return Report{}, err
	}
	return r, nil
}
