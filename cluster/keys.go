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

// The keys in the store, by the name of a member or the datapath id of a switch.
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
// records others could misread gets the next number; it writes that number, and such records, only
// when all live members know the format. An additional field is no such change: members that do not
// know it ignore it, and without it the meaning must be as before.
const format = 1

// formatRecord is the cluster's current format; without the record: the first.
type formatRecord struct {
	Format int `json:"format"`
}

// MemberRecord is what a member publishes about itself.
type MemberRecord struct {
	Name     string    `json:"name"`
	Instance string    `json:"instance"` // identifies this process among all that ever had the name
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	OpenFlow string    `json:"openflow"` // address for switches
	API      string    `json:"api"`      // address for people
	Beat     int64     `json:"beat"`     // number of beats so far
	Format   int       `json:"format,omitempty" doc:"The newest format of records that it supports"`
}

// SwitchRecord is the master of a switch.
type SwitchRecord struct {
	Master   string `json:"master"`
	Instance string `json:"instance"` // the process with that name
}

// WantedRecord is the member that is to become master.
type WantedRecord struct {
	Member string `json:"member"`
	By     string `json:"by,omitempty"` // who wants it; empty: a user
}

type connectedRecord struct {
	Switches []string `json:"switches"` // datapath ids, hexadecimal
}

// SwitchKey and WantedKey return the keys of the two.
func SwitchKey(dpid uint64) string { return fmt.Sprintf("%s%016x", SwitchPrefix, dpid) }
func WantedKey(dpid uint64) string { return fmt.Sprintf("%s%016x", WantedPrefix, dpid) }

// DPIDOf returns the datapath id at the end of a key below a prefix.
func DPIDOf(key, prefix string) (dpid uint64, ok bool) {
	text, ok := strings.CutPrefix(key, prefix)
	dpid, err := strconv.ParseUint(text, 16, 64)
	return dpid, ok && err == nil && len(text) == 16
}

// encode encodes a record, which cannot fail for those of this package.
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

// CheckName reports why a name is not valid for a member.
func CheckName(n string) error {
	if !name.MatchString(n) {
		return errors.New("a member's name has up to 63 letters, digits, dots, dashes and underscores, and begins with a letter or digit")
	}
	return nil
}
