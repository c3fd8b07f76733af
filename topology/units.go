package topology

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// OrNone makes a parser also accept none, or 0, for the zero value, which overrides a default.
func OrNone[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(s string) (zero T, err error) {
		if s == "none" || s == "0" {
			return zero, nil
		}
		return parse(s)
	}
}

// TextOrNone writes a value in the form that such a parser reads.
func TextOrNone(v any) string {
	if reflect.ValueOf(v).IsZero() {
		return "none"
	}
	return fmt.Sprint(v)
}

// Rate is in bits per second, written as tc does: 64kbit, 1.5mbit, 10gbit.
type Rate uint64

var rateUnits = []struct {
	name string
	bits float64
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

var numberUnit = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z%/µ]*)$`)

// ParseRate reads "10mbit" (bit, kbit, mbit, gbit; also Mbit/s and Mbps, which in networking means
// bits).
func ParseRate(s string) (Rate, error) {
	bad := Mistaken("write 1gbit, 500mbit, 64kbit", "%q is not a rate", s)
	m := numberUnit.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, bad
	}
	unit := strings.ToLower(m[2])
	unit = strings.TrimSuffix(strings.TrimSuffix(unit, "/s"), "s")
	if rest, ok := strings.CutSuffix(unit, "bp"); ok { // mbps
		unit = rest + "bit"
	}
	number, _ := strconv.ParseFloat(m[1], 64)
	for _, u := range rateUnits {
		if unit == u.name {
			bits := math.Round(number * u.bits)
			if bits < 1 || bits > 1e15 {
				return 0, Mistaken("a rate is between 1bit and 1000000gbit", "%q is out of range", s)
			}
			return Rate(bits), nil
		}
	}
	return 0, bad
}

func (r Rate) String() string {
	for _, u := range rateUnits {
		if v := float64(r) / u.bits; v >= 1 || u.bits == 1 {
			return strconv.FormatFloat(v, 'f', -1, 64) + u.name
		}
	}
	return "0bit"
}

func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r *Rate) UnmarshalText(b []byte) (err error) { *r, err = ParseRate(string(b)); return }

// Duration is a time span written with a unit: 250us, 10ms, 1.5s.
type Duration time.Duration

// ParseDuration reads a time span; a unit is required, so that the meaning of 10 is never guessed.
func ParseDuration(s string) (Duration, error) {
	m := numberUnit.FindStringSubmatch(strings.TrimSpace(s))
	if m != nil {
		units := map[string]time.Duration{"ns": 1, "us": time.Microsecond, "µs": time.Microsecond,
			"usec": time.Microsecond,
			"ms":   time.Millisecond, "msec": time.Millisecond, "s": time.Second, "sec": time.Second,
			"min": time.Minute, "m": time.Minute, "h": time.Hour}
		if unit, ok := units[strings.ToLower(m[2])]; ok {
			number, _ := strconv.ParseFloat(m[1], 64)
			if ns := math.Round(number * float64(unit)); ns <= float64(24*time.Hour*365) {
				return Duration(ns), nil
			}
			return 0, Mistaken("the longest is a year", "%q is out of range", s)
		}
	}
	return 0, Mistaken("write 10ms, 250us, 1.5s", "%q is not a time span", s)
}

func (d Duration) String() string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}} {
		if time.Duration(d) >= u.unit {
			return strconv.FormatFloat(float64(d)/float64(u.unit), 'f', -1, 64) + u.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Duration) UnmarshalText(b []byte) (err error) { *d, err = ParseDuration(string(b)); return }

// Fraction is in [0, 1], written as a percentage: 0.1%. In JSON it is a number.
type Fraction float64

// ParseFraction reads "5%" or, without a percent sign, a number in [0, 1].
func ParseFraction(s string) (Fraction, error) {
	digits, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	digits = strings.TrimSpace(digits)
	v, err := strconv.ParseFloat(digits, 64)
	if percent {
		if exact, err := strconv.ParseFloat(digits+"e-2", 64); err == nil { // it has no exponent of its own
			v = exact
		} else {
			v = fromPercent(v)
		}
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, Mistaken("write 0.1% or 0.001 (at most 100%)", "%q is not a share", s)
	}
	return Fraction(math.Abs(v)), nil // there is a -0
}

// fromPercent divides by 100 in decimal, so that 0.1% becomes exactly the float64 0.001.
func fromPercent(v float64) float64 {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'f', -1, 64)+"e-2", 64)
	return f
}

// Percent returns the fraction in percent, exact in decimal.
func (f Fraction) Percent() float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'f', -1, 64)+"e2", 64)
	return v
}

// FromPercent returns the fraction for a number of percent, exact in decimal.
func FromPercent(v float64) Fraction { return Fraction(fromPercent(v)) }

// String moves the point by two digits: what reads the text gets exactly this fraction, which it
// would not always of the nearest float64 to its percentage.
func (f Fraction) String() string {
	whole, part, _ := strings.Cut(strconv.FormatFloat(float64(f), 'f', -1, 64), ".")
	part += strings.Repeat("0", max(0, 2-len(part)))
	percent := cmp.Or(strings.TrimLeft(whole+part[:2], "0"), "0")
	if part[2:] != "" {
		percent += "." + part[2:]
	}
	return percent + "%"
}

// CPU is a limit on processor time: a number of CPUs ("0.5"), or a share of the whole machine
// ("25%").
type CPU struct {
	CPUs  float64
	Share Fraction
}

// ParseCPU reads "0.5" (CPUs) or "25%" (of all the machine's CPUs together).
func ParseCPU(s string) (CPU, error) {
	if strings.HasSuffix(strings.TrimSpace(s), "%") {
		f, err := ParseFraction(s)
		if err == nil && f > 0 {
			return CPU{Share: f}, nil
		}
	} else if v, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil && v > 0 && v <= 4096 {
		return CPU{CPUs: v}, nil
	}
	return CPU{}, Mistaken("write 0.5 (CPUs) or 25% (of the machine)", "%q is not a CPU limit", s)
}

// Processors returns how many of this machine's processors the limit amounts to; 0 if there is no
// limit.
func (c CPU) Processors() float64 {
	if c.Share > 0 {
		return float64(c.Share) * float64(runtime.NumCPU())
	}
	return c.CPUs
}

func (c CPU) String() string {
	if c.Share > 0 {
		return c.Share.String()
	}
	return strconv.FormatFloat(c.CPUs, 'f', -1, 64)
}

func (c CPU) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c *CPU) UnmarshalText(b []byte) (err error) { *c, err = ParseCPU(string(b)); return }

// DPID is an OpenFlow datapath id; zero means unset.
type DPID uint64

// ParseDPID reads decimal ("26"), hexadecimal with 0x ("0x1a"), 16 hexadecimal
// digits ("000000000000001a") or the same with colons.
func ParseDPID(s string) (DPID, error) {
	v, err := uint64(0), error(nil)
	digits := strings.ReplaceAll(s, ":", "")
	switch {
	case strings.HasPrefix(s, "0x"), strings.HasPrefix(s, "0X"):
		v, err = strconv.ParseUint(s[2:], 16, 64)
	case len(digits) == 16:
		v, err = strconv.ParseUint(digits, 16, 64)
	default:
		v, err = strconv.ParseUint(s, 10, 64)
	}
	if err != nil || v == 0 {
		return 0, Mistaken("write 26, 0x1a or 000000000000001a (not 0)", "%q is not a datapath id", s)
	}
	return DPID(v), nil
}

func (d DPID) String() string { return fmt.Sprintf("%016x", uint64(d)) }

func (d DPID) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *DPID) UnmarshalText(b []byte) (err error) { *d, err = ParseDPID(string(b)); return }

// MAC is an Ethernet address; zero means unset.
type MAC [6]byte

// ParseMAC reads "02:00:00:00:00:01" (a unicast address), and "2:0:0:0:0:1" as Linux tools do.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '-' })
	for i, p := range parts {
		if len(p) == 1 {
			parts[i] = "0" + p
		}
	}
	b, err := hex.DecodeString(strings.Join(parts, ""))
	if err != nil || len(b) != 6 || len(parts) != 6 || strings.Count(s, ":")+strings.Count(s, "-") != 5 {
		return m, Mistaken("write 02:00:00:00:00:01", "%q is not a MAC address", s)
	}
	copy(m[:], b)
	if m[0]&1 == 1 || m == (MAC{}) {
		return MAC{}, Mistaken("write 02:00:00:00:00:01",
			"%q is not the MAC address of a device: it is a multicast or the zero address", s)
	}
	return m, nil
}

func (m MAC) String() string {
	return net.HardwareAddr(m[:]).String()
}

func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func (m *MAC) UnmarshalText(b []byte) (err error) { *m, err = ParseMAC(string(b)); return }
