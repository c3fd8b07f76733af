package user

import (
	"errors"
	"fmt"
	"strings"

	"trivet.dev/trivet/openflow"
)

// Parse reads an entry in the syntax of ovs-ofctl(8). What a user may not give is an error: a
// cookie, by which entries are known, and what only deletes and asks. So is an entry without
// actions=, which would drop by mistake.
func Parse(text string) (*openflow.FlowMod, error) {
	m, err := openflow.ParseFlow(text)
	if err != nil {
		return nil, err
	}
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(!strings.Contains(text, "actions="), "say what to do with the packets: actions=output:2, actions=drop")
	refuse(m.Cookie != 0 || m.CookieMask != 0, "cookie: the controller sets it, as it says whose entry this is")
	refuse(m.Table > openflow.TableMax, "table=all: an entry is in one table; write its number")
	refuse(m.OutPort != openflow.PortAny || m.OutGroup != openflow.GroupAny, "out_port and out_group are for deleting")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}
