package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
)

// LeaveOut removes from the plan what this machine cannot run; each part names cells, and perhaps
// one probe. The runs keep their numbers. It fails if nothing is left.
func (p *Plan) LeaveOut(parts []result.LeftOut) error {
	p.LeftOut = nil
	without := map[string]map[string]bool{} // probes by cell
	for _, l := range parts {
		for _, cell := range l.Cells {
			if without[cell] == nil {
				without[cell] = map[string]bool{}
			}
			without[cell][l.Probe] = true
		}
	}
	for _, l := range parts {
		if l.Probe == "" {
			p.LeftOut = append(p.LeftOut, p.named(l))
			continue
		}
		// If no other probe is left, the whole cell is left out.
		whole, some := l, l
		whole.Probe, whole.Cells, some.Cells = "", nil, nil
		for _, id := range l.Cells {
			if without[id][""] {
				continue
			}
			if p.all(id, without[id]) {
				whole.Cells = append(whole.Cells, id)
			} else {
				some.Cells = append(some.Cells, id)
			}
		}
		for _, part := range []result.LeftOut{whole, some} {
			if len(part.Cells) > 0 {
				p.LeftOut = append(p.LeftOut, p.named(part))
			}
		}
	}
	p.estimate()
	if len(parts) > 0 && p.toRun() == 0 {
		errs := []error{errors.New("nothing of this experiment can run on this machine")}
		for _, l := range p.LeftOut {
			errs = append(errs, fmt.Errorf("  %s: %s", l.What, because(l)))
		}
		return errors.Join(errs...)
	}
	return nil
}

// all says whether a cell has only these probes.
func (p *Plan) all(cell string, probes map[string]bool) bool {
	for i := range p.Cells {
		if p.Cells[i].ID == cell {
			return !slices.ContainsFunc(slices.Concat(p.Cells[i].Groups...),
				func(one Probe) bool { return !probes[one.Name] })
		}
	}
	return false
}

// named describes it as briefly as possible: by a level, if it affects all cells of that level.
func (p *Plan) named(l result.LeftOut) result.LeftOut {
	var inside []*Cell
	for i := range p.Cells {
		if slices.Contains(l.Cells, p.Cells[i].ID) {
			inside = append(inside, &p.Cells[i])
		}
	}
	what := ""
	if len(inside) < len(p.Cells) {
		what = p.commonLevel(inside)
	}
	switch {
	case l.Probe != "" && what == "":
		l.What = "probe " + l.Probe
	case l.Probe != "":
		l.What = "probe " + l.Probe + " where " + what
	case what == "":
		l.What = "all of it"
	default:
		l.What = what
	}
	return l
}

// commonLevel returns as few levels of one factor as possible that these cells have and no others
// do, or the cells' names.
func (p *Plan) commonLevel(cells []*Cell) string {
	var common []string
	for _, s := range cells[0].Levels {
		level := func(c *Cell) string {
			i := slices.IndexFunc(c.Levels, func(o Setting) bool { return o.Factor == s.Factor })
			return c.Levels[i].Name
		}
		var levels []string
		for _, c := range cells {
			if l := level(c); !slices.Contains(levels, l) {
				levels = append(levels, l)
			}
		}
		count := 0
		for i := range p.Cells {
			if slices.Contains(levels, level(&p.Cells[i])) {
				count++
			}
		}
		if count == len(cells) && (common == nil || len(levels) < len(common)-1) {
			common = append([]string{s.Factor}, levels...)
		}
	}
	if common != nil {
		return common[0] + "=" + strings.Join(common[1:], " or ")
	}
	names := lists.Map(cells[:min(len(cells), 4)], func(c *Cell) string { return c.ID })
	if more := len(cells) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, "; ")
}

// because returns the reason with the hint.
func because(l result.LeftOut) string {
	if l.Hint == "" {
		return l.Why
	}
	return l.Why + ":  " + l.Hint
}

// MissingText describes what is left out, a line for each: "left out: controller=pox (2 of 6 runs):
// pox is not installed: …".
func (p *Plan) MissingText() (lines []string) {
	for _, l := range p.LeftOut {
		runs := lists.Count(p.Runs, func(r Run) bool { return slices.Contains(l.Cells, p.Cells[r.Cell].ID) })
		lines = append(lines,
			fmt.Sprintf("left out: %s (%d of %s): %s", l.What, runs, words.Plural(len(p.Runs), "run"), because(l)))
	}
	return lines
}

// Leaves says whether all of a cell is left out.
func (p *Plan) Leaves(cell *Cell) bool { return len(p.kept(cell)) == 0 }

// leaves says whether a probe of a cell is left out; "" means any of them.
func (p *Plan) leaves(cell *Cell, probe string) bool {
	return slices.ContainsFunc(p.LeftOut, func(l result.LeftOut) bool {
		return (l.Probe == "" || l.Probe == probe) && slices.Contains(l.Cells, cell.ID)
	})
}

// kept returns the groups of a cell without what is left out.
func (p *Plan) kept(cell *Cell) (out [][]Probe) {
	if len(p.LeftOut) == 0 {
		return cell.Groups
	}
	for _, group := range cell.Groups {
		rest := slices.DeleteFunc(slices.Clone(group), func(one Probe) bool { return p.leaves(cell, one.Name) })
		if len(rest) > 0 {
			out = append(out, rest)
		}
	}
	return out
}

// toRun counts the runs that are not left out.
func (p *Plan) toRun() int {
	return lists.Count(p.Runs, func(r Run) bool { return len(p.kept(&p.Cells[r.Cell])) > 0 })
}
