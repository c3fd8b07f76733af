// Package draw makes pictures of a report's figures, for papers and slides: SVG and PNG, by
// gonum/plot.
package draw

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/definition"
)

// Size of pictures: a column and a half of a paper.
const (
	width  = 14 * vg.Centimeter
	height = 9 * vg.Centimeter
	dpi    = 200 // of PNG
)

// palette is Okabe and Ito's ("Color Universal Design", 2008), which colour-blind people can tell
// apart too; yellow, which paper does not show well, is last.
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73,
		0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x55, 0x55, 0x55,
		0xff}, color.RGBA{0xb8, 0xa8, 0x00, 0xff},
}

// shapes are those of our points, and the same hollow, of doubtful ones. The paper's are crosses,
// which are neither.
var shapes = [][2]draw.GlyphDrawer{
	{draw.CircleGlyph{}, draw.RingGlyph{}}, {draw.BoxGlyph{}, draw.SquareGlyph{}}, {draw.PyramidGlyph{},
		draw.TriangleGlyph{}},
	{diamond{}, diamond{hollow: true}},
}

var paperShape = draw.CrossGlyph{}

// diamond is a square on its corner.
type diamond struct{ hollow bool }

// DrawGlyph is of draw.GlyphDrawer.
func (d diamond) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius * 1.3
	points := []vg.Point{{X: at.X, Y: at.Y - r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X - r, Y: at.Y}}
	if !d.hollow {
		c.FillPolygon(style.Color, points)
		return
	}
	c.StrokeLines(draw.LineStyle{Color: style.Color, Width: vg.Points(0.5)}, append(points, points[0]))
}

var dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}}

// SVG writes a figure as SVG.
func SVG(to io.Writer, f *report.Figure) error {
	p, err := build(f)
	if err != nil {
		return err
	}
	c := vgsvg.New(width, height)
	if err := paint(p, draw.New(c)); err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	_, err = fonts.WriteString(to, b.String())
	return err
}

// fonts adds metric-compatible fonts for viewers without the one used for measuring.
var fonts = strings.NewReplacer("font-family:Liberation Sans;",
	"font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")

// PNG writes a figure as PNG.
func PNG(to io.Writer, f *report.Figure) error {
	p, err := build(f)
	if err != nil {
		return err
	}
	c := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))}
	if err := paint(p, draw.New(c)); err != nil {
		return err
	}
	_, err = c.WriteTo(to)
	return err
}

// paint draws the plot with margins, and the legend beside it, where it hides nothing.
func paint(p *plot.Plot, c draw.Canvas) (err error) {
	defer func() { // the library panics at what it cannot draw, and results may come from anyone
		if r := recover(); r != nil {
			err = fmt.Errorf("the figure %q cannot be drawn: %v", p.Title.Text, r)
		}
	}()
	if r, ok := c.Canvas.(interface{ SetColor(color.Color) }); ok {
		r.SetColor(color.White)
		c.Fill(c.Rectangle.Path())
	}
	c = draw.Crop(c, 2*vg.Millimeter, -3*vg.Millimeter, 2*vg.Millimeter, -2*vg.Millimeter)
	c = title(p, c)
	legend := p.Legend
	p.Legend = plot.NewLegend()
	box := legend.Rectangle(c)
	if wide := 1.2 * (box.Max.X - box.Min.X); wide > 0 { // a viewer's font may be wider
		legend.Left = true
		legend.Draw(draw.Crop(c, c.Max.X-c.Min.X-wide, 0, 0, 0))
		c = draw.Crop(c, 0, -wide-3*vg.Millimeter, 0, 0)
	}
	slant(p, c.Max.X-c.Min.X)
	p.Draw(c)
	return nil
}

// title writes the title over the whole picture, legend and all, in letters that let it fit, and
// returns what is left below. The library would have it over the plot, and cut.
func title(p *plot.Plot, c draw.Canvas) draw.Canvas {
	style, text := p.Title.TextStyle, p.Title.Text
	p.Title.Text = ""
	const least = 5
	for 1.1*style.Width(text) > c.Max.X-c.Min.X && style.Font.Size > least { // a viewer's letters may be wider
		style.Font.Size--
	}
	style.XAlign, style.YAlign = draw.XCenter, draw.YTop
	c.FillText(style, vg.Point{X: (c.Min.X + c.Max.X) / 2, Y: c.Max.Y}, text)
	return draw.Crop(c, 0, 0, 0, -style.Height(text)-p.Title.Padding)
}

// slant turns the names of categories that would not fit beside each other in a picture so wide.
func slant(p *plot.Plot, width vg.Length) {
	names, _ := p.X.Tick.Marker.(plot.ConstantTicks)
	const axis = 1.6 * vg.Centimeter // of y
	for _, n := range names {
		if p.X.Tick.Label.Width(n.Label)+vg.Points(3) > (width-axis)/vg.Length(len(names)) {
			p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = math.Pi/6, draw.XRight, draw.YTop
			return
		}
	}
}

// build builds the plot for either format.
func build(f *report.Figure) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = f.Title
	p.X.Label.Text, p.Y.Label.Text = f.X.Title(), f.Y.Title()
	styles(p)
	p.Legend.Top = true
	p.Legend.Padding = 2
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe4}, color.Gray{0xe4}
	p.Add(grid)
	if f.X.Categories != nil {
		p.NominalX(f.X.Categories...)
		p.X.Min, p.X.Max = -0.5, float64(len(f.X.Categories))-0.5
	}
	b := builder{p, f, log(f)}
	if err := b.series(); err != nil {
		return nil, fmt.Errorf("figure %q: %w", f.Title, err)
	}
	b.axes()
	b.ticks()
	b.zero()
	b.events()
	return p, nil
}

func styles(p *plot.Plot) {
	for _, style := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		style.Variant, style.Size = "Sans", 9
	}
	p.Title.TextStyle.Font.Size = 11
	p.Title.Padding = 6
}

type builder struct {
	*plot.Plot
	figure *report.Figure
	log    [2]bool // x and y
}

// log returns which axes are logarithmic: not those with values of zero or below.
func log(f *report.Figure) [2]bool {
	x, y := f.X.Log && f.X.Categories == nil, f.Y.Log
	for _, s := range f.Series {
		for _, p := range s.Points {
			x, y = x && p.X > 0, y && p.Y > 0
			if p.Box != nil {
				y = y && p.Box.Low > 0 && slices.Min(append([]float64{p.Y}, p.Box.Out...)) > 0
			}
		}
		for _, t := range s.Traces {
			for i := range t.X {
				x, y = x && t.X[i] > 0, y && t.Y[i] > 0
			}
		}
	}
	return [2]bool{x, y}
}

// base returns where bars begin: at zero or, on a logarithmic axis, at the power of ten below the
// least value.
func (b builder) base() float64 {
	if !b.log[1] {
		return 0
	}
	least := math.Inf(1)
	for _, s := range b.figure.Series {
		for _, p := range s.Points {
			least = math.Min(least, p.Y)
		}
	}
	below := math.Pow(10, math.Floor(math.Log10(least)+1e-9))
	if below > 0.9*least {
		below /= 10
	}
	return below
}

func (b builder) axes() {
	if b.log[0] {
		b.X.Scale = plot.LogScale{}
	}
	switch {
	case b.figure.Zero && !(b.Y.Max > 0): // a line on the axis
		b.Y.Min, b.Y.Max = 0, 1
	case b.log[1]:
		b.Y.Scale = plot.LogScale{}
		if b.figure.Kind == definition.Bar {
			b.Y.Min = b.base()
		}
	case b.figure.Kind == definition.CDF:
		b.Y.Min, b.Y.Max = 0, 1
	case b.Y.Min > 0 && (b.figure.Kind == definition.Bar || b.Y.Min < 0.6*b.Y.Max):
		b.Y.Min = 0
	}
	if b.figure.X.Categories == nil && b.figure.Kind == definition.Line && !b.log[0] {
		room := 0.03 * (b.X.Max - b.X.Min)
		b.X.Min, b.X.Max = b.X.Min-room, b.X.Max+room
	}
	for _, axis := range []*plot.Axis{&b.X, &b.Y} {
		if !(axis.Max > axis.Min) || math.IsInf(axis.Max-axis.Min, 0) {
			middle := axis.Min
			if math.IsInf(middle, 0) || math.IsNaN(middle) {
				middle = 0
			}
			axis.Min, axis.Max = middle-math.Max(1, math.Abs(middle)/10), middle+math.Max(1, math.Abs(middle)/10)
			axis.Scale, axis.Tick.Marker = plot.LinearScale{}, plot.DefaultTicks{}
		}
	}
}

// zero says of a figure that it is not empty.
func (b builder) zero() {
	if !b.figure.Zero {
		return
	}
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: (b.X.Min + b.X.Max) / 2,
		Y: (b.Y.Min + b.Y.Max) / 2}}, Labels: []string{"all values are 0"}})
	if err != nil {
		return
	}
	labels.TextStyle[0].Font.Variant, labels.TextStyle[0].Font.Size, labels.TextStyle[0].XAlign = "Sans", 9,
		draw.XCenter
	labels.TextStyle[0].Color = color.Gray{0x70}
	b.Add(labels)
}

// events are dashed lines over the whole height, with numbers that a list in the caption would
// explain; here the text itself.
func (b builder) events() {
	for _, e := range b.figure.Events {
		line, err := plotter.NewLine(plotter.XYs{{X: e.At, Y: b.Y.Min}, {X: e.At, Y: b.Y.Max}})
		if err != nil {
			continue
		}
		line.Color, line.Dashes = color.Gray{0x70}, []vg.Length{3, 3}
		b.Add(line)
		labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: e.At, Y: b.Y.Max}},
			Labels: []string{short(e.What, 40)}})
		if err != nil {
			continue
		}
		labels.TextStyle[0].Font.Variant, labels.TextStyle[0].Font.Size = "Sans", 7
		labels.TextStyle[0].Rotation = math.Pi / 2
		labels.TextStyle[0].XAlign = draw.XRight
		labels.Offset = vg.Point{X: -2, Y: -2}
		b.Add(labels)
	}
}

func short(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return strings.TrimSpace(string(r[:most])) + "…"
	}
	return s
}
