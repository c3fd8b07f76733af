package cli

import (
	"cmp"
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

// refresh is the time between two pictures, and what rates are over; controllers measure about as
// often.
const refresh = time.Second

func (a *app) top() *cobra.Command {
	var once bool
	var most int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the load and the queues of the links, and the packets at the controller",
		Long: "Watch the load of the links, the busiest first, as their devices and switches count it, whoever controls these;\n" +
			"and the packets that come to Trivet's controller, by protocol. QUEUED are the packets that wait in each direction of\n" +
			"a link now, DROPPED those dropped there since the link was made; – where nothing can wait, or nobody counts. With\n" +
			"--json there is a line of JSON each second. On a terminal q or Ctrl-C quits.",
		Example: "  trivet top\n  trivet top --json\n  trivet top --once --json",
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
			if err := t.watch(cmd.Context()); err != nil {
				return err
			}
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

	lacking []string // what is missing of what is shown now
	lab     *kernels // whose links are read, too; nil: a controller alone is watched
}

// measurements are what is shown. The time is that of the look at the lab's links, of a controller
// alone that of its statistics. The period is that of the links' rates; 0: there are none yet.
type measurements struct {
	api.Statistics
	Time   time.Time          `json:"time"`
	Links  []lab.LinkTraffic  `json:"links"`
	Models []lab.ModelledNode `json:"models,omitempty"`
}

// watch has the chosen lab be watched.
func (t *top) watch(ctx context.Context) error {
	c, s, err := t.app.client()
	if err != nil {
		return err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return err
	}
	t.of = "lab " + s.Name
	t.lab = &kernels{c, t.controllerOf(c), info.Topology, info.Topology.NodesByName()}
	return nil
}

// ask returns the current measurements, with what the lab's links carry.
func (t *top) ask(ctx context.Context, now lab.TrafficLook) (m measurements, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	t.lacking = nil
	m.Statistics = api.Statistics{Time: time.Now(), Moved: []api.MovedPath{}, Ports: []api.PortStatistics{},
		PacketsIn: []api.PacketsIn{}}
	if t.controlled() {
		if m.Statistics, err = t.client.Statistics(ctx); err != nil {
			return m, err
		}
	}
	m.Time = m.Statistics.Time
	if m.Links = withMeasured(now.Links, m.Statistics.Links); t.lab != nil {
		m.Time, m.Period = now.Time, now.Period
		m.Models, err = t.lab.client.Models(ctx)
	}
	return m, err
}

// controlled says whether there is a controller to watch.
func (t *top) controlled() bool { return t.lab == nil || t.lab.controlled(t.lab.t.Nodes...) }

// once prints a picture as soon as there are rates.
func (t *top) once(ctx context.Context) (err error) {
	var s measurements
	if t.lab != nil {
		var now lab.TrafficLook
		if now, err = t.lab.client.Traffic(ctx, refresh); err == nil {
			s, err = t.ask(ctx, now)
		}
	} else {
		for begin := time.Now(); err == nil && !measured(s) && time.Since(begin) < 5*time.Second; {
			if s, err = t.ask(ctx, lab.TrafficLook{}); err == nil {
				err = pause(ctx, 100*time.Millisecond)
			}
		}
	}
	if err != nil {
		return err
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
	return len(s.Links) > 0 &&
		!slices.ContainsFunc(s.Links, func(l lab.LinkTraffic) bool { return l.Directions[0].Rate == nil })
}

// each calls show with what there is to show, again and again, until ctx ends.
func (t *top) each(ctx context.Context, show func(measurements) error) error {
	one := func(now lab.TrafficLook) error {
		s, err := t.ask(ctx, now)
		if err == nil {
			err = show(s)
		}
		t.before = s.Statistics
		return err
	}
	var err error
	if t.lab != nil {
		err = t.lab.client.FollowTraffic(ctx, refresh, one)
	}
	for t.lab == nil && err == nil {
		if err = one(lab.TrafficLook{}); err == nil {
			err = pause(ctx, refresh)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pause waits, for as long as ctx does not end.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// follow prints repeatedly, for a program or a file.
func (t *top) follow(ctx context.Context) error {
	return t.each(ctx, func(s measurements) error {
		if t.json {
			line, err := json.Marshal(s)
			if err == nil {
				line, err = api.WithMissing(line, t.lacking)
			}
			if err == nil {
				_, err = t.out.Write(append(words.PlainJSON(line), '\n'))
			}
			return err
		}
		t.lacks(t.lacking)
		fmt.Fprintln(t.out, s.Time.Format(time.TimeOnly))
		for _, line := range t.picture(s, math.MaxInt) {
			fmt.Fprintln(t.out, line)
		}
		fmt.Fprintln(t.out)
		return nil
	})
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
	return t.each(ctx, func(s measurements) error {
		width, height, err := term.GetSize(out)
		if err != nil {
			width, height = 80, 24
		}
		head := []string{t.of + "   q or Ctrl-C quits"}
		for _, what := range t.lacking {
			head = append(head, "missing is "+what)
		}
		t.draw(append(head, t.picture(s, height-1-len(head))...), width)
		return nil
	})
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
		there, back := l.Directions[0], l.Directions[1]
		row := []string{name(there.From) + " – " + name(there.To), rateText(there.Rate), rateText(back.Rate), "–", "–",
			queued(there), queued(back), dropped(there), dropped(back), ""}
		if capacity := max(there.Bandwidth, back.Bandwidth); capacity > 0 {
			row[3] = bits(float64(capacity))
		}
		if load := most(l, share); load >= 0 {
			row[4], row[9] = fmt.Sprintf("%.1f %%", 100*load), bar(load)
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
		return []string{fmt.Sprintf("links   measured every %.3g s", cmp.Or(s.Period, refresh.Seconds()))}
	}
	cpu := ""
	if d := s.Time.Sub(t.before.Time).Seconds(); !t.before.Time.IsZero() && d > 0 {
		cpu = fmt.Sprintf("%.0f %% CPU, ", 100*(s.Load.CPUSeconds-t.before.Load.CPUSeconds)/d)
	}
	text := fmt.Sprintf("controller   %s%.0f MB   measured every %.3g s", cpu, float64(s.Load.MemoryBytes)/1e6,
		cmp.Or(s.Period, refresh.Seconds()))
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
func name(e lab.Place) string {
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
