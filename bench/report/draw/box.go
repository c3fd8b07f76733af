package draw

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"trivet.dev/trivet/bench/report"
)

// boxes draws the boxes of a series.
type boxes struct {
	points      []report.Point
	seriesStyle seriesStyle
}

// Plot is of plot.Plotter.
func (b boxes) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := draw.LineStyle{Color: b.seriesStyle.color, Width: vg.Points(0.8)}
	for _, point := range b.points {
		box := point.Box
		if box == nil {
			continue
		}
		middle := point.X + b.seriesStyle.place
		left, right, center := x(middle-b.seriesStyle.width*0.4), x(middle+b.seriesStyle.width*0.4), x(middle)
		c.FillPolygon(pale(b.seriesStyle.color), []vg.Point{{X: left, Y: y(box.Q1)}, {X: left, Y: y(box.Q3)},
			{X: right, Y: y(box.Q3)}, {X: right, Y: y(box.Q1)}})
		for _, line := range [][2]vg.Point{
			{{X: left, Y: y(box.Q1)}, {X: right, Y: y(box.Q1)}}, {{X: left, Y: y(box.Q3)}, {X: right, Y: y(box.Q3)}},
			{{X: left, Y: y(box.Q1)}, {X: left, Y: y(box.Q3)}}, {{X: right, Y: y(box.Q1)}, {X: right, Y: y(box.Q3)}},
			{{X: center, Y: y(box.Low)}, {X: center, Y: y(box.Q1)}}, {{X: center, Y: y(box.Q3)},
				{X: center, Y: y(box.High)}},
		} {
			c.StrokeLine2(style, line[0].X, line[0].Y, line[1].X, line[1].Y)
		}
		c.StrokeLine2(draw.LineStyle{Color: color.Gray{0x20}, Width: vg.Points(1.5)}, left, y(box.Median), right,
			y(box.Median))
		for _, out := range box.Out {
			c.DrawGlyph(draw.GlyphStyle{Color: b.seriesStyle.color, Radius: vg.Points(1.2), Shape: draw.CircleGlyph{}},
				vg.Point{X: center, Y: y(out)})
		}
	}
}

// DataRange is of plot.DataRanger.
func (b boxes) DataRange() (xmin, xmax, ymin, ymax float64) {
	for i, p := range b.points {
		low, high := p.Box.Low, p.Box.High
		for _, out := range p.Box.Out {
			low, high = min(low, out), max(high, out)
		}
		if i == 0 {
			xmin, xmax, ymin, ymax = p.X-0.5, p.X+0.5, low, high
		}
		xmin, xmax, ymin, ymax = min(xmin, p.X-0.5), max(xmax, p.X+0.5), min(ymin, low), max(ymax, high)
	}
	return xmin, xmax, ymin, ymax
}

// boxEntry is a box in the legend.
type boxEntry struct{ seriesStyle seriesStyle }

// Thumbnail is of plot.Thumbnailer.
func (b boxEntry) Thumbnail(c *draw.Canvas) {
	points := []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Max.Y},
		{X: c.Max.X, Y: c.Min.Y}}
	c.FillPolygon(pale(b.seriesStyle.color), c.ClipPolygonXY(points))
	c.StrokeLines(draw.LineStyle{Color: b.seriesStyle.color, Width: vg.Points(0.8)}, append(points, points[0]))
}
