package discover

import (
	"fmt"
	"strings"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
)

// Inventory writes the devices down as a rack (docs/rack.md), with a comment at each that says what
// tells.
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
		if d.Banner == "" { // nothing of a lab can be there, but somebody may know better
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

// comment says what is known of a device, on one line.
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

// limited makes what a stranger says fit on a line, and harmless there.
func limited(s string) string {
	const most = 80
	r := []rune(words.Printable(s))
	if len(r) > most {
		r = append(r[:most], '…')
	}
	return string(r)
}

// vlansOf gives each device its last octet as VLAN, where that can be one and no other has it.
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
