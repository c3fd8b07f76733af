// Package flowload measures OpenFlow controllers: it is any number of switches, in one
// process, that ask a controller what to do with packets, and checks what they are told.
//
// In throughput mode every switch has a window of packets that wait for an answer; in
// latency mode the window is 1. A packet is a frame between two hosts of the switch,
// and its answer the first FLOW_MOD or PACKET_OUT that is tied to it by buffer, frame
// or addresses and says a port. The port must be the one where the host lives to
// whom the answer leads, once that host has been heard; else the answer is wrong. Further
// messages for the same packet do not count; a packet without an answer is lost after a time.
//
// In line mode the switches are cabled in a line and nobody asks anything: what the
// controller sends out of a port comes in at the next switch. It shows how soon a
// controller knows the links of a network, and what it costs it to watch them.
//
// A switch keeps the entries and groups that it is given (they can be read back), and a
// packet comes to the controller by the entry that sends it there, with that one's
// cookie, table and reason. Entries that would keep a packet from the controller do not:
// the same hosts are asked about again and again.
package flowload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"trivet.dev/trivet/openflow"
)

// Mode is what the switches do.
type Mode string

const (
	Throughput Mode = "throughput"
	Latency    Mode = "latency"
	Line       Mode = "line"
)

// Config is what to measure. New fills in defaults.
type Config struct {
	Connect  string // of the controller: tcp:ADDRESS:PORT or unix:PATH
	Version  uint8  // of OpenFlow, on the wire: 0x04 or 0x01
	Mode     Mode
	Switches int
	Ports    int // of each switch; in a line 1 and 2 lead to its neighbours
	Hosts    int // of each switch
	Window   int // unanswered packets of a switch at a time

	Warmup   time.Duration // before the measurement begins
	Duration time.Duration // of the measurement; of line mode in all, from the first connection on
	Timeout  time.Duration // after which a packet is lost; over a connection that holds, an answer can only be late
	Settle   time.Duration // the longest to wait for connections, for entries, and for all hosts to be learned

	FirstDPID uint64 // datapath id of the first switch (0: 1); those of the others follow it
	Fresh     bool   // each packet from a host that was never heard before
	VLAN      uint16 // tag of the packets; 0: none
	NoBuffers bool   // the switches keep no packets: answers carry the frames

	PID       int                       // of the controller, whose processor time and memory count; 0: unknown
	LinksLost func() (n int, err error) // in line mode: how many links the controller considered lost; nil: unknown
	Progress  func(what string)         // called with what begins; may be nil
}

// New returns a Config for a mode with defaults: version 1.3, 4 ports (6 in a line), a window of
// 64.
func New(mode Mode) Config {
	c := Config{Connect: "tcp:127.0.0.1:6653", Version: openflow.Version, Mode: mode, FirstDPID: 1, Switches: 1,
		Ports: 4, Hosts: 1000, Window: 64,
		Warmup: time.Second, Duration: 10 * time.Second, Timeout: 5 * time.Second, Settle: 10 * time.Second}
	if mode == Line {
		c.Ports, c.Window, c.Duration = 6, 0, 30*time.Second
	}
	return c
}

// Check reports what is wrong with a Config.
func (c *Config) Check() error {
	_, _, err := c.address()
	switch {
	case err != nil:
		return err
	case c.Mode != Throughput && c.Mode != Latency && c.Mode != Line:
		return fmt.Errorf("there is no mode %q; there are throughput, latency and line", c.Mode)
	case c.Version != openflow.Version && c.Version != version10:
		return errors.New("the OpenFlow version must be 1.3 or 1.0")
	case c.Switches < 1 || c.Switches > 0xffff:
		return fmt.Errorf("%d switches: there can be 1 to 65535", c.Switches)
	case c.Ports < 2 || c.Ports > 1000:
		return fmt.Errorf("%d ports: a switch can have 2 to 1000", c.Ports)
	case c.Mode == Line && c.Switches < 2:
		return errors.New("a line needs two switches or more")
	case c.Duration <= 0 || c.Warmup < 0 || c.Timeout <= 0 || c.Settle <= 0:
		return errors.New("the times must be positive")
	case c.Mode == Line:
		return nil
	case c.Hosts < 10 || c.Hosts > 0xfff0:
		return fmt.Errorf("%d hosts: a switch can have 10 to 65520", c.Hosts)
	case c.Mode == Throughput && (c.Window < 1 || c.Window > c.Hosts-c.servers()):
		return fmt.Errorf("a window of %d: it must be 1 to %d, a packet from every host that asks (four out of five of the %d hosts)", c.Window, c.Hosts-c.servers(), c.Hosts)
	}
	return nil
}

func (c *Config) address() (network, address string, err error) {
	network, address, ok := strings.Cut(c.Connect, ":")
	if !ok || network != "tcp" && network != "unix" || address == "" {
		return "", "", fmt.Errorf("%q is not the address of a controller; write tcp:ADDRESS:PORT or unix:PATH",
			c.Connect)
	}
	if network == "tcp" {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return "", "", fmt.Errorf("%q is not the address of a controller: %w", c.Connect, err)
		}
	}
	return network, address, nil
}

// servers is the number of hosts of a switch that are asked for; the others ask. So no address has
// two roles.
func (c *Config) servers() int { return max(2, c.Hosts/5) }

// buffers is the number of packet buffers that switches announce.
func (c *Config) buffers() uint32 {
	if c.NoBuffers {
		return 0
	}
	return 256
}

// Result is the measurement. Times and rates exclude the warm-up.
type Result struct {
	Mode     Mode    `json:"mode"`
	OpenFlow string  `json:"openflow"`
	Switches int     `json:"switches"`
	Hosts    int     `json:"hosts,omitempty"`
	Window   int     `json:"window,omitempty"`
	Seconds  float64 `json:"seconds"`

	Answers    uint64     `json:"answers"`
	PerSecond  float64    `json:"answers_per_second"`
	PerCPU     float64    `json:"answers_per_cpu_second,omitempty"` // of the controller
	Wrong      uint64     `json:"wrong"`
	Lost       uint64     `json:"lost"`
	Unheard    int        `json:"hosts_unheard"` // whose announcement had no answer
	Times      *Times     `json:"latency_us,omitempty"`
	Line       *LineFound `json:"line,omitempty"`
	Dropped    int        `json:"switches_dropped"` // connections that the controller ended
	Controller *Usage     `json:"controller,omitempty"`
	Generator  Usage      `json:"generator"`
	Limited    bool       `json:"generator_was_the_limit"`
	Notes      []string   `json:"notes,omitempty"`
}

// Times are latencies in µs, from the write of a packet to the read of its answer.
type Times struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// LineFound is the result of line mode. Times are in seconds since the first connection.
type LineFound struct {
	Directions int     `json:"directions"` // of links: two for each
	Crossed    int     `json:"crossed"`    // by a probe of the controller
	Handshakes int     `json:"handshakes"` // switches that the controller asked for their features
	AllUp      float64 `json:"all_up_seconds,omitempty"`
	AllCrossed float64 `json:"all_crossed_seconds,omitempty"`
	Probes     float64 `json:"probes_per_second"` // PACKET_OUTs of probes, when steady
	// How long that was: from 2 s after all directions were crossed, at least the last half.
	Steady     float64 `json:"steady_seconds"`
	SteadyCPU  float64 `json:"steady_cpu_share,omitempty"`
	LongestGap float64 `json:"longest_gap_seconds"` // in which a direction that had been crossed saw no probe
	LinksLost  *int    `json:"links_lost,omitempty"`
}

// Run measures. It returns early with what it has, and the context's error, when that ends.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Mode == Latency {
		c.Window = 1
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	r, err := newRun(c)
	if err != nil {
		return nil, err
	}
	go r.loop.serve()
	defer r.loop.end()
	if c.Mode == Line {
		return r.line(ctx)
	}
	return r.ask(ctx)
}

func dpidText(dpid uint64) string { return fmt.Sprintf("%016x", dpid) }
