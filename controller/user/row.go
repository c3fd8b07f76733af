package user

import (
	"fmt"
	"strconv"
	"time"

	"trivet.dev/trivet/openflow"
)

// row is an entry as stored; the database's view user_flows shows it.
type row struct {
	ID       int64   `json:"id"`
	Switch   string  `json:"switch"` // datapath id, 16 hexadecimal digits
	Table    uint8   `json:"table"`
	Priority uint16  `json:"priority"`
	Match    string  `json:"match"`
	Flow     string  `json:"flow"`    // all of it, in the syntax of openflow.FormatFlow and ParseFlow
	Created  float64 `json:"created"` // seconds since 1970, UTC
}

func rowOf(f Flow) row {
	return row{ID: f.ID, Switch: fmt.Sprintf("%016x", f.Switch), Table: f.Flow.Table, Priority: f.Flow.Priority,
		Match: f.Flow.Match.String(),
		Flow:  openflow.FormatFlow(f.Flow), Created: float64(f.Created.UnixMicro()) / 1e6}
}

// key is the key of the entry's place: a switch has one entry per place.
func (r row) key() string { return fmt.Sprintf("%s/%d/%d/%s", r.Switch, r.Table, r.Priority, r.Match) }

func (r row) flow() (f Flow, err error) {
	if r.ID < 1 || r.ID > maxID {
		return f, fmt.Errorf("no entry can have the number %d", r.ID)
	}
	f = Flow{ID: r.ID, Created: time.UnixMicro(int64(r.Created * 1e6))}
	if f.Switch, err = strconv.ParseUint(r.Switch, 16, 64); err != nil {
		return f, err
	}
	f.Flow, err = openflow.ParseFlow(r.Flow)
	return f, err
}
