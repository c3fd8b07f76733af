package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/target/local/wifi"
	"trivet.dev/trivet/topology"
)

// A wireless link is a real interface with hostapd, if its node is a switch, or wpa_supplicant.
// These run with the machine's own files, in the network namespace of the node and a cgroup of
// their own. Their configurations, which contain keys, sockets and logs are in the lab's directory
// wifi, which only root can read.

// wireless are the programs that run at wireless interfaces, by interface.
type wireless struct {
	mu       sync.Mutex
	programs map[string]*wirelessProgram
}

type wirelessProgram struct {
	of       string // "hostapd of link s1-wlan0"
	cmd      *exec.Cmd
	ended    chan struct{} // closed when it has ended
	unwanted atomic.Bool   // it is being ended by us
}

func (p *wirelessProgram) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (w *wireless) get(device string) *wirelessProgram {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.programs[device]
}

// put records the program at an interface; nil removes it.
func (w *wireless) put(device string, p *wirelessProgram) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.programs == nil {
		w.programs = map[string]*wirelessProgram{}
	}
	if w.programs[device] = p; p == nil {
		delete(w.programs, device)
	}
}

func (l *Lab) wifiDir() string             { return filepath.Join(l.Dir, "wifi") }
func (l *Lab) wifiFile(name string) string { return filepath.Join(l.wifiDir(), name) }

// wifiGroup is the cgroup of the program at a wireless interface.
func wifiGroup(device string) string { return ".wifi-" + device }

// wirelessLink is a wireless link that is up, and the program for its interface.
type wirelessLink struct {
	*topology.Link
	node, device string
	program      *wifi.Program
}

func (k wirelessLink) of() string { return k.program.Name + " of link " + k.Name() }

func wirelessLinks(t *topology.Topology, nodes map[string]*topology.Node) (out []wirelessLink) {
	for _, link := range t.Links {
		if at, device, ok := link.WifiEnds(); ok && !link.Down {
			out = append(out, wirelessLink{link, at.Node, device.Interface, wifi.Of(link, nodes[at.Node])})
		}
	}
	return out
}

// checkWifi says what a topology's wireless links need and this machine does not have.
func checkWifi(t *topology.Topology) error {
	nodes, missing := t.NodesByName(), map[*wifi.Program]bool{}
	var errs []error
	var p topology.Problems
	for _, k := range wirelessLinks(t, nodes) {
		if elsewhere(t, nodes[k.node]) {
			continue
		}
		if _, err := k.program.Path(); err != nil && !missing[k.program] {
			missing[k.program] = true
			errs = append(errs, err)
		}
		w, err := wifi.Find(k.device)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			continue // the lab has it already; or it does not exist, which taking it will report
		}
		if err != nil {
			return err
		}
		if w == nil {
			p.Add(k.Pos, "name one that is: iw dev lists them", "link %s: interface %s is not wireless", k.Name(),
				k.device)
			continue
		}
		others, err := w.Others()
		if err != nil {
			return err
		}
		if len(others) > 0 {
			p.Add(k.Pos, fmt.Sprintf("if nothing needs them:  iw dev %s del", others[0]),
				"link %s: the radio of %s has other interfaces, which the lab would take along: %s", k.Name(), k.device,
				strings.Join(others, ", "))
		}
	}
	return errors.Join(append(errs, p.Err())...)
}

// runWifi starts the programs of wireless links that are new or changed and programs that have
// ended, and ends those of links that are gone or down.
func (l *Lab) runWifi() error {
	links := wirelessLinks(l.Topology(), l.nodes())
	l.wireless.mu.Lock()
	var old []string
	for device := range l.wireless.programs {
		if !slices.ContainsFunc(links, func(k wirelessLink) bool { return k.device == device }) {
			old = append(old, device)
		}
	}
	l.wireless.mu.Unlock()
	errs := lists.Map(old, l.endWifi)
	for _, k := range links {
		if err := l.runWifiOf(k); err != nil {
			errs = append(errs, fmt.Errorf("link %s: %w", k.Name(), err))
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) runWifiOf(k wirelessLink) error {
	if err := os.MkdirAll(l.wifiDir(), 0o700); err != nil {
		return err
	}
	file, text := l.wifiFile(k.device+".conf"), k.program.Config(k.Wifi, k.device, l.wifiDir())
	was, _ := os.ReadFile(file)
	if p := l.foundWifi(k); p != nil && string(was) == text {
		return nil
	}
	if err := l.endWifi(k.device); err != nil {
		return err
	}
	path, err := k.program.Path()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(l.wifiFile(k.device+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(path, k.program.Arguments(k.device, file)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.Cgroups.Make(l.Name, &topology.Node{Name: wifiGroup(k.device)}); err != nil {
		return err
	}
	err = l.inNet(k.node, func() error {
		dir, err := l.Cgroups.Bear(cmd, l.Name, wifiGroup(k.device))
		if err != nil {
			return err
		}
		defer dir.Close()
		return cmd.Start()
	})
	if err != nil {
		return err
	}
	return l.awaitWifi(k, l.watchWifi(k, cmd), log.Name())
}

// foundWifi returns the program that runs at a link's interface, which an earlier process of the
// lab may have started; nil if none does.
func (l *Lab) foundWifi(k wirelessLink) *wirelessProgram {
	if p := l.wireless.get(k.device); p != nil {
		if p.alive() {
			return p
		}
		return nil
	}
	for _, pid := range l.Cgroups.Processes(l.Name, wifiGroup(k.device)) {
		if cmd, err := process.Command(pid); err == nil {
			return l.watchWifi(k, cmd)
		}
	}
	return nil
}

// watchWifi reports the program's events, and when it ends by itself.
func (l *Lab) watchWifi(k wirelessLink, cmd *exec.Cmd) *wirelessProgram {
	p := &wirelessProgram{of: k.of(), cmd: cmd, ended: make(chan struct{})}
	l.wireless.put(k.device, p)
	go func() {
		how := process.Wait(cmd)
		close(p.ended)
		if !p.unwanted.Load() {
			site{l}.Ended(p.of + " has ended" + how)
		}
	}()
	go l.hearWifi(k, p)
	return p
}

// awaitWifi waits until an access point is active, or wpa_supplicant answers.
func (l *Lab) awaitWifi(k wirelessLink, p *wirelessProgram, log string) error {
	for starts := patience.AccessPoint.Begin(); ; time.Sleep(20 * time.Millisecond) {
		if c, err := wifi.Dial(l.wifiDir(), k.device); err == nil {
			status, err := c.Ask("STATUS")
			c.Close()
			if state := wifi.Value(status, "state"); err == nil &&
				(state == "ENABLED" || wifi.Value(status, "wpa_state") != "") {
				return nil
			}
		}
		if !p.alive() || starts.Over() {
			p.unwanted.Store(true)
			return fmt.Errorf("%s does not work; the end of its log:\n%s", k.program.Name, process.LastWords(log))
		}
	}
}

// endWifi ends the program at an interface, which first announces that to its peers.
func (l *Lab) endWifi(device string) error {
	p := l.wireless.get(device)
	if p != nil {
		p.unwanted.Store(true)
		_ = p.cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(3 * time.Second):
		}
		l.wireless.put(device, nil)
	}
	return l.Cgroups.Remove(l.Name, wifiGroup(device))
}

// deadWifi lists the programs of wireless links that should be running but are not.
func (l *Lab) deadWifi() (out []string) {
	for _, k := range wirelessLinks(l.Topology(), l.nodes()) {
		if p := l.wireless.get(k.device); p == nil || !p.alive() {
			out = append(out, k.of())
		}
	}
	return out
}

// awaitStations waits until the stations of new links are connected, and reports those that are
// not: their access point may be somebody else's.
func (l *Lab) awaitStations(ctx context.Context, s plan.Steps) {
	ctx, cancel := patience.Join.Context(ctx)
	defer cancel()
	for _, k := range wirelessLinks(l.Topology(), l.nodes()) {
		if k.AccessPoint(l.node(k.node)) ||
			!slices.ContainsFunc(s.AddLinks, func(a plan.Link) bool { return a.Link == k.Link }) {
			continue
		}
		if err := l.awaitStation(ctx, k); err != nil {
			l.say(fmt.Sprintf("link %s: %s is not in the network %s yet: %v", k.Name(), k.node, k.Wifi.SSID, err))
		}
	}
}

// awaitStation waits until a station is connected. It stops waiting if its key is refused, which
// hearWifi reports.
func (l *Lab) awaitStation(ctx context.Context, k wirelessLink) error {
	c, err := wifi.Dial(l.wifiDir(), k.device)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Attach(); err != nil {
		return err
	}
	for {
		status, err := c.Ask("STATUS")
		if err != nil {
			return err
		}
		state := wifi.Value(status, "wpa_state")
		if state == "COMPLETED" {
			return nil
		}
		event, err := c.Event(time.Now().Add(100 * time.Millisecond))
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case wrongKey(event):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("no access point of that name takes it (%s)", strings.ToLower(state))
		}
	}
}

// wrongKey says whether an event of a station says that an access point refuses its key.
func wrongKey(event string) bool {
	words := strings.Fields(event)
	return len(words) > 0 && words[0] == "CTRL-EVENT-SSID-TEMP-DISABLED" && slices.Contains(words, "reason=WRONG_KEY")
}

// hearWifi reports events of the radio to the lab's owner, until the program ends.
func (l *Lab) hearWifi(k wirelessLink, p *wirelessProgram) {
	refused := map[string]int{} // how often: stations try again and again
	for p.alive() {
		c, err := wifi.Dial(l.wifiDir(), k.device)
		if err == nil {
			err = c.Attach()
		}
		for err == nil && p.alive() {
			var event string
			event, err = c.Event(time.Now().Add(time.Second))
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
			}
			if what := k.explain(event, refused); what != "" && !l.closing.Load() {
				l.say(what)
			}
		}
		if c != nil {
			c.Close()
		}
		if l.closing.Load() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// explain says what an event means; "" if users need not know.
func (k wirelessLink) explain(event string, refused map[string]int) string {
	words := strings.Fields(event)
	if len(words) == 0 {
		return ""
	}
	who := words[min(1, len(words)-1)]
	switch words[0] {
	case "AP-STA-CONNECTED":
		delete(refused, who)
		return fmt.Sprintf("link %s: station %s has joined", k.Name(), who)
	case "AP-STA-DISCONNECTED":
		return fmt.Sprintf("link %s: station %s has left", k.Name(), who)
	case "AP-STA-POSSIBLE-PSK-MISMATCH":
		if refused[who]++; refused[who] == 2 { // a slow answer may look like a refusal once
			return fmt.Sprintf("link %s: station %s has another key, and is refused", k.Name(), who)
		}
	case "CTRL-EVENT-CONNECTED":
		delete(refused, k.Wifi.SSID)
	case "CTRL-EVENT-SSID-TEMP-DISABLED":
		if refused[k.Wifi.SSID]++; wrongKey(event) && refused[k.Wifi.SSID] == 1 {
			return fmt.Sprintf("link %s: the access point of %s refuses the key of %s", k.Name(), k.Wifi.SSID, k.node)
		}
	}
	return ""
}
