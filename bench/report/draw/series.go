package draw

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/measure/environment"
)

// seriesStyle is the style of a series.
type seriesStyle struct {
	color color.Color
	shape [2]draw.GlyphDrawer // of good points, and of doubtful ones
	dash  []vg.Length
	place float64 // among series that stand side by side, from −0.5 to 0.5 of a category
	width float64 // of a category
}

// seriesStyles returns a style for each series: our own differ from each other; the paper's has the
// colour of ours of the same name, with dashes and crosses.
func seriesStyles(f *report.Figure) []seriesStyle {
	out, own, byName := make([]seriesStyle, len(f.Series)), 0, map[string]seriesStyle{}
	for i, s := range f.Series {
		if s.Paper {
			continue
		}
		out[i] = seriesStyle{color: palette[own%len(palette)], shape: shapes[own%len(shapes)],
			dash: dashes[own/len(palette)%len(dashes)]}
		byName[s.Name] = out[i]
		own++
	}
	for i, s := range f.Series {
		if !s.Paper {
			continue
		}
		l, ok := byName[s.Name]
		if !ok {
			l = seriesStyle{color: palette[own%len(palette)]}
			own++
		}
		l.shape, l.dash = [2]draw.GlyphDrawer{paperShape, paperShape}, []vg.Length{3, 3}
		out[i] = l
	}
	n := float64(len(f.Series))
	for i := range out {
		out[i].width = 0.8 / n
		out[i].place = (float64(i) - (n-1)/2) * out[i].width
	}
	return out
}

func (b builder) series() error {
	styles := seriesStyles(b.figure)
	for i, s := range b.figure.Series {
		var err error
		switch {
		case len(s.Traces) > 0:
			err = b.traces(s, styles[i])
		case b.figure.Kind == definition.Bar:
			err = b.bars(s, styles[i])
		case b.figure.Kind == definition.Box:
			b.boxes(s, styles[i])
		default:
			err = b.line(s, styles[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// legend adds a series, where there is something to tell apart.
func (b builder) legend(s report.Series, entry ...plot.Thumbnailer) {
	name := short(s.Name, 40)
	if s.Paper {
		name += " (paper)"
	}
	if len(b.figure.Series) > 1 || s.Paper {
		b.Legend.Add(name, entry...)
	}
}

// fine is the number of points from which on the steps of a distribution are too small to be seen.
const fine = 100

func (b builder) traces(s report.Series, l seriesStyle) error {
	for i, t := range s.Traces {
		points := make(plotter.XYs, 0, 2*len(t.X))
		for k := range t.X {
			if b.figure.Kind == definition.CDF && k > 0 && len(t.X) < fine {
				points = append(points, plotter.XY{X: t.X[k], Y: t.Y[k-1]}) // steps
			}
			points = append(points, plotter.XY{X: t.X[k], Y: t.Y[k]})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Dashes, line.Width = l.color, l.dash, vg.Points(1)
		if len(s.Traces) > 1 {
			line.Width = vg.Points(0.5)
		}
		b.Add(line)
		if i == 0 {
			b.legend(s, line)
		}
	}
	return nil
}

// errorBars are the intervals of points.
type errorBars struct {
	plotter.XYs
	plotter.YErrors
}

func (b builder) intervals(s report.Series, l seriesStyle, place float64) error {
	var e errorBars
	for _, p := range s.Points {
		low, high := float64(p.Low), float64(p.High)
		if math.IsNaN(low) || math.IsNaN(high) || b.log[1] && low <= 0 {
			continue
		}
		e.XYs = append(e.XYs, plotter.XY{X: p.X + place, Y: p.Y})
		e.YErrors = append(e.YErrors, struct{ Low, High float64 }{low - p.Y, high - p.Y})
	}
	if len(e.XYs) == 0 {
		return nil
	}
	bars, err := plotter.NewYErrorBars(e)
	if err != nil {
		return err
	}
	bars.Color, bars.Width = l.color, vg.Points(0.8)
	if b.figure.Kind == definition.Bar {
		bars.Color = color.Gray{0x30}
	}
	b.Add(bars)
	return nil
}

// line draws a line with a marker at each point; doubtful points have hollow ones.
func (b builder) line(s report.Series, l seriesStyle) error {
	place := 0.0
	if b.figure.X.Categories != nil {
		place = l.place / 2
	}
	points := make(plotter.XYs, len(s.Points))
	for i, p := range s.Points {
		points[i] = plotter.XY{X: p.X + place, Y: p.Y}
	}
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, line.Dashes = l.color, l.dash
	marks.Color, marks.Shape, marks.Radius = l.color, l.shape[0], vg.Points(2.5)
	marks.GlyphStyleFunc = func(i int) draw.GlyphStyle {
		style := draw.GlyphStyle{Color: l.color, Shape: l.shape[0], Radius: vg.Points(2.5)}
		if suspect(s.Points[i].Level) {
			style.Shape = l.shape[1]
		}
		return style
	}
	b.Add(line, marks)
	b.legend(s, line, marks)
	return b.intervals(s, l, place)
}

func suspect(level environment.Level) bool {
	return level == environment.Doubtful || level == environment.Bad
}

// bars draws bars side by side; doubtful ones are pale.
func (b builder) bars(s report.Series, l seriesStyle) error {
	base := b.base()
	for i, p := range s.Points {
		from, to := p.X+l.place-l.width*0.45, p.X+l.place+l.width*0.45
		bar, err := plotter.NewPolygon(plotter.XYs{{X: from, Y: base}, {X: from, Y: p.Y}, {X: to, Y: p.Y},
			{X: to, Y: base}})
		if err != nil {
			return err
		}
		bar.LineStyle = draw.LineStyle{Color: l.color, Width: vg.Points(0.8), Dashes: l.dash}
		bar.Color = l.color
		if s.Paper || suspect(p.Level) {
			bar.Color = pale(l.color)
		}
		b.Add(bar)
		if i == 0 {
			entry := *bar
			entry.Color = l.color
			if s.Paper {
				entry.Color = pale(l.color)
			}
			b.legend(s, &entry)
		}
	}
	return b.intervals(s, l, l.place)
}

func pale(c color.Color) color.Color {
	r, g, bl, _ := c.RGBA()
	lift := func(v uint32) uint8 { return uint8(0xff - (0xff-v>>8)/3) }
	return color.RGBA{lift(r), lift(g), lift(bl), 0xff}
}

// boxes draws the boxes computed by the report, so that page and picture agree.
func (b builder) boxes(s report.Series, l seriesStyle) {
	b.Add(boxes{s.Points, l})
	b.legend(s, boxEntry{l})
}
