package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
)

// refresh is the time between two pictures; the controller measures about as often.
const refresh = time.Second

func (a *app) top() *cobra.Command {
	var once bool
	var most int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the load and the queues of the links, and the packets at the controller",
		Long: "Watch the load of the links, the busiest first, and the packets that come to the controller, by protocol, as the\n" +
			"switches count them; links that Trivet's controller does not see as their devices count them. QUEUED are the packets\n" +
			"that wait in each direction of a link now, DROPPED those dropped there since the link was made; – where nothing can\n" +
			"wait, or nobody counts. On a terminal q or Ctrl-C quits.",
		Example: "  trivet top\n  trivet top --once --json",
		Args:    cobra.NoArgs,
	}
	k := controllerFlags(cmd)
	cmd.Flags().BoolVar(&once, "once", false, "print once and exit")
	cmd.Flags().IntVarP(&most, "links", "n", 0,
		"how many links to list (default: as many as the terminal has room for, else all)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		t := top{app: a, client: c, most: most, of: "controller " + k.address}
		if k.address == "" {
			if t.lab, err = a.watchedLab(cmd.Context()); err != nil {
				return err
			}
			t.of = "lab " + t.lab.name
		}
		if k.address == "" {
			c.Lacks = func(missing []string) { t.lacking = missing }
		}
		switch {
		case once:
			return t.once(cmd.Context())
		case isTerminal(a.out) && isTerminal(os.Stdin) && !a.json:
			return t.live(cmd.Context())
		}
		return t.follow(cmd.Context())
	}
	return cmd
}

// top is what the command shows, and what it showed last.
type top struct {
	*app
	client *api.Client
	most   int
	of     string // what is watched
	before api.Statistics

	lacking []string    // what is missing of what is shown now
	lab     *watchedLab // whose links are read, too; nil: a controller alone is watched
}

// measurements are what is shown.
type measurements struct {
	api.Statistics
	Links  []watchedLink      `json:"links"`
	Models []lab.ModelledNode `json:"models,omitempty"`
}

// ask returns the current measurements.
func (t *top) ask(ctx context.Context) (m measurements, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	t.lacking = nil
	m.Statistics = api.Statistics{Time: time.Now(), Period: refresh.Seconds(), Moved: []api.MovedPath{},
		Ports: []api.PortStatistics{}, PacketsIn: []api.PacketsIn{}}
	if t.controlled() {
		if m.Statistics, err = t.client.Statistics(ctx); err != nil {
			return m, err
		}
	}
	m.Links = []watchedLink{}
	if t.lab != nil {
		if m.Links, err = t.lab.links(ctx, m.Statistics.Links); err == nil { // apply may add some
			m.Models, err = t.lab.client.Models(ctx)
		}
		return m, err
	}
	for _, l := range m.Statistics.Links {
		m.Links = append(m.Links, watchedLink{Link: l, counted: true})
	}
	return m, nil
}

// controlled says whether there is a controller to watch.
func (t *top) controlled() bool { return t.lab == nil || t.lab.controlled(t.lab.t.Nodes...) }

// once prints a picture as soon as there are rates, which take two readings.
func (t *top) once(ctx context.Context) error {
	var s measurements
	for begin := time.Now(); ; {
		var err error
		if s, err = t.ask(ctx); err != nil {
			return err
		}
		if measured(s) || time.Since(begin) > 5*time.Second {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t.lacks(t.lacking)
	if t.lab == nil {
		t.warnOfPart(ctx, t.client)
	}
	if t.json {
		return t.printJSON(s)
	}
	for _, line := range t.picture(s, math.MaxInt) {
		fmt.Fprintln(t.out, line)
	}
	return nil
}

// measured says whether all rates that there will be are there.
func measured(s measurements) bool {
	for _, l := range s.Links {
		if l.Rates[0] == nil && l.counted {
			return false
		}
	}
	return len(s.Links) > 0
}

// follow prints repeatedly, for a program or a file.
func (t *top) follow(ctx context.Context) error {
	for {
		s, err := t.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if t.json {
			line, err := json.Marshal(s)
			if err == nil {
				line, err = api.WithMissing(line, t.lacking)
			}
			if err != nil {
				return err
			}
			if _, err := t.out.Write(append(words.PlainJSON(line), '\n')); err != nil {
				return err
			}
		} else {
			t.lacks(t.lacking)
			fmt.Fprintln(t.out, s.Time.Format(time.TimeOnly))
			for _, line := range t.picture(s, math.MaxInt) {
				fmt.Fprintln(t.out, line)
			}
			fmt.Fprintln(t.out)
		}
		t.before = s.Statistics
		select {
		case <-time.After(refresh):
		case <-ctx.Done():
			return nil
		}
	}
}

// live draws on the terminal's alternate screen, each picture over the last in a single write, so
// that nothing flickers.
func (t *top) live(ctx context.Context) error {
	in, out := int(os.Stdin.Fd()), int(t.out.(*os.File).Fd())
	state, err := term.MakeRaw(in)
	if err != nil {
		return err
	}
	defer term.Restore(in, state)
	fmt.Fprint(t.out, "\x1b[?1049h\x1b[?25l")
	defer fmt.Fprint(t.out, "\x1b[?25h\x1b[?1049l")
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	keys := t.keys
	if keys == nil {
		if keys, err = newKeyboard(in); err != nil {
			return err
		}
	}
	keys.start()
	quitted := make(chan struct{})
	defer func() { // from now on, what is typed is left for the next reader
		keys.Stop()
		<-quitted
	}()
	go func() {
		defer close(quitted)
		defer quit()
		for b := make([]byte, 1); ; {
			if _, err := keys.Read(b); err != nil || b[0] == 'q' || b[0] == 'Q' || b[0] == 3 {
				return
			}
		}
	}()
	for {
		s, err := t.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		width, height, err := term.GetSize(out)
		if err != nil {
			width, height = 80, 24
		}
		head := []string{t.of + "   q or Ctrl-C quits"}
		for _, what := range t.lacking {
			head = append(head, "missing is "+what)
		}
		t.draw(append(head, t.picture(s, height-1-len(head))...), width)
		t.before = s.Statistics
		select {
		case <-time.After(refresh):
		case <-ctx.Done():
			return nil
		}
	}
}

func (t *top) draw(lines []string, width int) {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(runewidth.Truncate(line, width, "…") + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	fmt.Fprint(t.out, b.String())
}

// picture is what is shown, in at most height lines.
func (t *top) picture(s measurements, height int) []string {
	head := t.summary(s.Statistics)
	packets := []string{}
	if t.controlled() {
		packets = packetLines(s.PacketsIn)
	}
	moved := movedLines(s.Moved, max(3, height/4))
	models := modelLines(s.Models, max(3, height/4))
	room := height - len(head) - len(models) - len(packets) - len(moved) - 3
	if t.most > 0 {
		room = min(room, t.most)
	}
	links := s.Links[:max(0, min(len(s.Links), room))]
	rows := [][]string{{"LINK", "→", "←", "CAPACITY", "LOAD", "QUEUED →", "←", "DROPPED →", "←", ""}}
	for _, l := range links {
		capacity := max(l.Capacity[0], l.Capacity[1])
		row := []string{name(l.Ends[0]) + " – " + name(l.Ends[1]), rateText(l.Rates[0]), rateText(l.Rates[1]), "–", "–",
			l.queued(0), l.queued(1), l.dropped(0), l.dropped(1), ""}
		if capacity > 0 {
			row[3] = bits(capacity)
		}
		if l.Utilisation != nil {
			row[4], row[9] = fmt.Sprintf("%.1f %%", 100**l.Utilisation), bar(*l.Utilisation)
		}
		rows = append(rows, row)
	}
	lines := append(head, models...)
	lines = append(lines, "")
	lines = append(lines, columns(rows, "lrrrrrrrrl")...)
	if more := len(s.Links) - len(links); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return slices.Concat(lines, moved, []string{""}, packets)
}

// summary describes the controller in one line.
func (t *top) summary(s api.Statistics) []string {
	if !t.controlled() {
		return []string{fmt.Sprintf("links   measured every %.3g s", s.Period)}
	}
	cpu := ""
	if d := s.Time.Sub(t.before.Time).Seconds(); !t.before.Time.IsZero() && d > 0 {
		cpu = fmt.Sprintf("%.0f %% CPU, ", 100*(s.Load.CPUSeconds-t.before.Load.CPUSeconds)/d)
	}
	text := fmt.Sprintf("controller   %s%.0f MB   measured every %.3g s", cpu, float64(s.Load.MemoryBytes)/1e6,
		s.Period)
	if s.Database != nil && s.Database.Dropped+s.Database.Failed > 0 {
		text += fmt.Sprintf("   database: %d rows lost", s.Database.Dropped+s.Database.Failed)
	}
	return []string{text}
}

// modelLines show the slow devices for which nodes stand, so many at most.
func modelLines(nodes []lab.ModelledNode, most int) []string {
	if len(nodes) == 0 {
		return nil
	}
	rows := [][]string{{"MODEL", "OF", "WAITING", "SERVED", "DROPPED", "BUSY"}}
	shown := nodes[:min(len(nodes), most)]
	for _, n := range shown {
		row := []string{n.Node, n.Model.String(), "–", "–", "–", "–"}
		if d := n.Device; n.Model.Serves() {
			row = append(row[:2], fmt.Sprint(d.Waiting.Packets), fmt.Sprint(d.Served.Packets),
				fmt.Sprint(d.Overflowed.Packets), d.Busy.Round(time.Millisecond).String())
		}
		rows = append(rows, row)
	}
	lines := append([]string{""}, columns(rows, "llrrrr")...)
	if more := len(nodes) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return lines
}

func packetLines(list []api.PacketsIn) []string {
	if len(list) == 0 {
		return []string{"no packets have come to the controller"}
	}
	rows := [][]string{{"AT THE CONTROLLER", "PACKETS/s", "PACKETS", "BYTES"}}
	for _, p := range list {
		rows = append(rows,
			[]string{p.Protocol, fmt.Sprintf("%.0f", p.PacketRate), fmt.Sprint(p.Packets), fmt.Sprint(p.Bytes)})
	}
	return columns(rows, "lrrr")
}

// name names an end of a link: its interface if that includes the node's name, else both.
func name(e api.End) string {
	if strings.HasPrefix(e.Interface, e.Node) {
		return e.Interface
	}
	return strings.TrimSpace(e.Node + " " + e.Interface)
}

// rateText formats a rate that may be unknown.
func rateText(r *float64) string {
	switch {
	case r == nil:
		return "–"
	case *r < 1:
		return "0"
	}
	return bits(*r)
}

const barWidth = 20

// bar draws a share as a bar, in eighths of a character.
func bar(share float64) string {
	n := int(math.Round(min(1, max(0, share)) * barWidth * 8))
	text := strings.Repeat("█", n/8)
	if n%8 > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[n%8-1])
	}
	return text
}

// columns aligns cells; align has a letter for each column: l for left, r for right.
func columns(rows [][]string, align string) []string {
	width := make([]int, len(align))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], runewidth.StringWidth(cell))
		}
	}
	lines := make([]string, len(rows))
	for i, r := range rows {
		for j, cell := range r {
			space := strings.Repeat(" ", width[j]-runewidth.StringWidth(cell))
			if align[j] == 'r' {
				lines[i] += space + cell + "   "
			} else {
				lines[i] += cell + space + "   "
			}
		}
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}
