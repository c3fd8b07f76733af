package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Where what the members agree on is kept, by the name of a member or the datapath id of a switch.
const (
	prefix          = "cluster/"
	MemberPrefix    = prefix + "member/"
	connectedPrefix = prefix + "connected/"
	SwitchPrefix    = prefix + "switch/"
	WantedPrefix    = prefix + "wanted/"
	drainPrefix     = prefix + "drain/"
	CentreKey       = prefix + "centre" // the member that is the scheduling centre
	formatKey       = prefix + "format"
)

// format is the newest format of records in the store that this version knows. A version whose
// records another could misunderstand has the next number, and writes it, and them, when all
// members that are there say that they know it; a field more is no such change: who does not know
// it ignores it, and where it is missing it means what was before.
const format = 1

// formatRecord is the format that the cluster has; none: the first.
type formatRecord struct {
	Format int `json:"format"`
}

// MemberRecord is what a member says of itself.
type MemberRecord struct {
	Name     string    `json:"name"`
	Instance string    `json:"instance"` // of this process: another one of that name has another
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	OpenFlow string    `json:"openflow"` // where switches connect
	API      string    `json:"api"`      // where people ask
	Beat     int64     `json:"beat"`     // how many there have been
	Format   int       `json:"format,omitempty" doc:"The newest format of records that it knows"`
}

// SwitchRecord is who is master of a switch.
type SwitchRecord struct {
	Master   string `json:"master"`
	Instance string `json:"instance"` // the process of that name
}

// WantedRecord is who is to be it.
type WantedRecord struct {
	Member string `json:"member"`
	By     string `json:"by,omitempty"` // whose wish it is; empty: a user's
}

type connectedRecord struct {
	Switches []string `json:"switches"` // datapath ids, hexadecimal
}

// SwitchKey and WantedKey are where the two are kept.
func SwitchKey(dpid uint64) string { return fmt.Sprintf("%s%016x", SwitchPrefix, dpid) }
func WantedKey(dpid uint64) string { return fmt.Sprintf("%s%016x", WantedPrefix, dpid) }

// DPIDOf reads the datapath id that ends a key below a prefix.
func DPIDOf(key, prefix string) (dpid uint64, is bool) {
	text, is := strings.CutPrefix(key, prefix)
	dpid, err := strconv.ParseUint(text, 16, 64)
	return dpid, is && err == nil && len(text) == 16
}

// encode writes a record; those of this package can always be written.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func encodeConnected(dpids []uint64) []byte {
	slices.Sort(dpids)
	r := connectedRecord{Switches: make([]string, len(dpids))}
	for i, d := range dpids {
		r.Switches[i] = strconv.FormatUint(d, 16)
	}
	return encode(r)
}

func decodeConnected(b []byte) (map[uint64]bool, error) {
	var r connectedRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	out := make(map[uint64]bool, len(r.Switches))
	for _, text := range r.Switches {
		if d, err := strconv.ParseUint(text, 16, 64); err == nil {
			out[d] = true
		}
	}
	return out, nil
}

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName says why a member cannot have a name.
func CheckName(n string) error {
	if !name.MatchString(n) {
		return errors.New("a member's name has up to 63 letters, digits, dots, dashes and underscores, and begins with a letter or digit")
	}
	return nil
}
