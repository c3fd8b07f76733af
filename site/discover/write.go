package discover

import (
	"fmt"
	"strings"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
)

// Inventory returns the devices as a rack file (docs/rack.md), with a comment on each that says
// what the guess is based on.
func Inventory(inner string, devices []*Device) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"# Found on %s by trivet rack init. What a device is, and its user, are guesses: look through them.\n", inner)
	fmt.Fprintf(&b, "gateway: {ssh: local, inner: %s}\ndevices:\n", inner)
	if len(devices) == 0 {
		return b.String() + "  # none answered; a line for each:  pi-1: {ssh: pi@10.42.0.101, labels: [pi]}\n"
	}
	vlans := vlansOf(devices)
	for _, d := range devices {
		mark := ""
		if d.Banner == "" { // it cannot take part in a lab, but the user may know better
			mark = "# "
		}
		entry := fmt.Sprintf("ssh: %s@%s", d.User, d.Address)
		if v := vlans[d]; v != uint16(d.Address.As4()[3]) {
			entry += fmt.Sprintf(", vlan: %d", v)
		}
		if k := site.DeviceKindOf(d.Kind); k != nil {
			entry += ", kind: " + k.Word
		}
		if len(d.Labels) > 0 {
			entry += ", labels: [" + strings.Join(d.Labels, ", ") + "]"
		}
		fmt.Fprintf(&b, "  %s%s: {%s}   # %s\n", mark, d.Name, entry, d.comment())
	}
	return b.String()
}

// comment describes a device, on one line.
func (d *Device) comment() string {
	parts := []string{d.MAC}
	if d.Vendor != "" {
		parts[0] += " (" + d.Vendor + ")"
	}
	for _, s := range []string{d.Banner, d.Host} {
		if s != "" {
			parts = append(parts, limited(s))
		}
	}
	parts = append(parts, d.Why)
	if len(d.Shared) > 0 {
		parts = append(parts, "its address belongs to "+strings.Join(d.Shared, ", ")+", too: give one of them another")
	}
	return strings.Join(parts, "; ")
}

// limited makes untrusted text fit on a line, without control characters.
func limited(s string) string {
	const most = 80
	r := []rune(words.Printable(s))
	if len(r) > most {
		r = append(r[:most], '…')
	}
	return string(r)
}

// vlansOf gives each device a VLAN: the last octet of its address, if that is valid and not taken.
func vlansOf(devices []*Device) map[*Device]uint16 {
	const first, next = 2, 256 // VLAN 1 is what switches call untagged frames
	out, taken := map[*Device]uint16{}, map[uint16]bool{}
	var others []*Device
	for _, d := range devices {
		if v := uint16(d.Address.As4()[3]); v >= first && !taken[v] {
			out[d], taken[v] = v, true
		} else {
			others = append(others, d)
		}
	}
	for i, d := range others {
		out[d] = uint16(next + i)
	}
	return out
}
