package user

import (
	"errors"
	"fmt"
	"strings"

	"trivet.dev/trivet/openflow"
)

// Parse parses an entry in the syntax of ovs-ofctl(8). It rejects what a user may not specify: a
// cookie, which identifies entries, and fields for deletion and queries only. It also rejects an
// entry without actions=, which would drop packets by mistake.
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
	refuse(!strings.Contains(text, "actions="),
		"specify what to do with packets, e.g. actions=output:2 or actions=drop")
	refuse(m.Cookie != 0 || m.CookieMask != 0, "cookie: the controller sets it, to identify the entry's owner")
	refuse(m.Table > openflow.TableMax, "table=all: an entry is in one table; give its number")
	refuse(m.OutPort != openflow.PortAny || m.OutGroup != openflow.GroupAny, "out_port and out_group are for deleting")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}
