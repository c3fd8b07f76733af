// Drawing a figure as SVG. Texts go in as text only.

const space = "http://www.w3.org/2000/svg";

function svg(name, attributes, text) {
  const e = document.createElementNS(space, name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  return e;
}

function node(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

// dress gives each series its colour; the paper's has that of ours of the same name.
function dress(figure) {
  let own = 0;
  const byName = new Map();
  for (const s of figure.series) if (!s.paper) byName.set(s.name, s.look = { colour: own % 8, dash: Math.floor(own++ / 8) % 4 });
  for (const s of figure.series) if (s.paper) s.look = byName.get(s.name) || { colour: own++ % 8, dash: 1 };
  figure.series.forEach((s, i) => { s.label = (s.name || figure.y.label) + (s.paper ? " (paper)" : ""); s.index = i; });
}

class Plot {
  constructor(box, figure) {
    this.box = box;
    this.figure = figure;
    this.hidden = new Set();
    this.view = null; // what is zoomed to
    // Repetitions are shown when asked for, and where they are too few for intervals.
    this.each = !figure.series.some(s => s.paper || (s.points || []).some(p => p.low !== null));
    dress(figure);
    this.buildLegend();
    this.svg = svg("svg", { role: "img", "aria-label": figure.title + ". The data are in the table below the figure." });
    box.append(this.svg);
    this.tip = node("div", "tip");
    this.tip.hidden = true;
    box.append(this.tip);
    this.listen();
    this.draw();
  }

  shown() { return this.figure.series.filter(s => !this.hidden.has(s.index)); }

  // extent is what of the axes the visible series need.
  extent() {
    const x = [], y = [], f = this.figure;
    const take = (list, ...values) => { for (const v of values) if (v !== null && Number.isFinite(v)) list.push(v); };
    for (const s of this.shown()) {
      for (const p of s.points || []) {
        take(x, p.x);
        take(y, p.y, p.low, p.high);
        if (p.box) take(y, p.box.low, p.box.high, ...(p.box.out || []));
        if (this.each) take(y, ...(p.values || []));
      }
      for (const t of s.traces || []) { for (const v of t.x) x.push(v); for (const v of t.y) y.push(v); }
    }
    for (const e of f.events || []) take(x, e.at);
    return { x: range(x), y: range(y) };
  }

  scales() {
    const f = this.figure, e = this.extent(), v = this.view;
    let [x0, x1] = e.x, [y0, y1] = e.y;
    const logX = f.x.log && x0 > 0, logY = f.y.log && y0 > 0;
    if (f.x.categories) { x0 = -0.5; x1 = f.x.categories.length - 0.5; }
    else if (!logX && f.kind === "line") { const pad = (x1 - x0) * 0.03; x0 -= pad; x1 += pad; }
    if (f.kind === "cdf") { y0 = 0; y1 = 1; }
    else if (logY) { y0 = f.kind === "bar" ? decadeBelow(y0) : y0 / 1.15; y1 *= 1.15; }
    else {
      if (y0 > 0 && (f.kind === "bar" || y0 < 0.6 * y1)) y0 = 0;
      if (y1 < 0 && f.kind === "bar") y1 = 0;
      const pad = (y1 - y0) * 0.06; y1 += pad; if (y0 !== 0) y0 -= pad;
    }
    if (v) { [x0, x1] = v.x; [y0, y1] = v.y; }
    const a = this.area;
    return { x: (logX ? logarithmic : linear)(x0, x1, a.left, a.right), y: (logY ? logarithmic : linear)(y0, y1, a.bottom, a.top) };
  }

  draw() {
    const width = Math.max(280, Math.round(this.box.clientWidth - 24)), height = Math.round(Math.min(400, Math.max(260, width * 0.5)));
    this.width = width; this.height = height;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    this.marks = [];
    this.area = { left: 0, right: width - 10, top: 12, bottom: height - 44 };
    this.scale = this.scales();
    const yTicks = ticks(this.scale.y, height / 55);
    this.area.left = 30 + Math.max(...yTicks.map(t => t.text.length), 2) * 7;
    this.slant = this.mustSlant();
    if (this.slant) this.area.bottom -= 34;
    this.scale = this.scales();
    this.axes(yTicks);
    const clip = "clip-" + this.box.dataset.figure, a = this.area;
    const path = svg("clipPath", { id: clip });
    path.append(svg("rect", { x: a.left - 5, y: a.top - 6, width: a.right - a.left + 10, height: a.bottom - a.top + 12 }));
    this.layer = svg("g", { "clip-path": `url(#${clip})` });
    this.svg.append(path, this.layer);
    if (this.figure.zero) this.layer.append(svg("text", { class: "zero", x: (a.left + a.right) / 2, y: (a.top + a.bottom) / 2, "text-anchor": "middle" }, "all values are 0"));
    this.events();
    const visible = this.shown();
    visible.forEach((s, i) => this.series(s, i, visible.length));
  }

  // mustSlant says whether the names of categories are too long to stand side by side.
  mustSlant() {
    const c = this.figure.x.categories;
    return Boolean(c) && c.length > 0 && Math.max(...c.map(t => t.length)) * 7 > (this.area.right - this.area.left) / c.length;
  }

  axes(yTicks) {
    const a = this.area, f = this.figure, s = this.scale;
    for (const t of yTicks) {
      const y = s.y.to(t.value);
      this.svg.append(svg("line", { class: "grid", x1: a.left, x2: a.right, y1: y, y2: y }), svg("text", { x: a.left - 7, y: y + 4, "text-anchor": "end" }, t.text));
    }
    for (const t of this.xTicks()) {
      const x = s.x.to(t.value);
      if (!f.x.categories) this.svg.append(svg("line", { class: "grid", x1: x, x2: x, y1: a.top, y2: a.bottom }));
      const at = this.slant ? { x, y: a.bottom + 14, "text-anchor": "end", transform: `rotate(-30 ${x} ${a.bottom + 14})` } : { x, y: a.bottom + 18, "text-anchor": "middle" };
      this.svg.append(svg("text", at, this.slant && t.text.length > 14 ? t.text.slice(0, 13) + "…" : t.text));
    }
    this.svg.append(svg("line", { class: "frame-line", x1: a.left, x2: a.right, y1: a.bottom, y2: a.bottom }));
    const title = x => x.unit && x.unit !== "1" ? `${x.label} [${x.unit}]` : x.label;
    const middle = (a.top + a.bottom) / 2;
    this.svg.append(svg("text", { class: "axis", x: (a.left + a.right) / 2, y: this.height - 6, "text-anchor": "middle" }, title(f.x)),
      svg("text", { class: "axis", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, title(f.y)));
  }

  xTicks() {
    const c = this.figure.x.categories, s = this.scale.x;
    if (c) {
      const every = Math.max(1, Math.ceil(c.length / Math.max(2, (this.area.right - this.area.left) / (this.slant ? 24 : 30))));
      return c.map((text, value) => ({ value, text })).filter(t => t.value % every === 0 && t.value >= s.low && t.value <= s.high);
    }
    // The levels themselves, where there is room for them.
    const levels = new Map();
    for (const one of this.shown()) for (const p of one.points || []) levels.set(p.x, p.name);
    const places = [...levels.keys()].filter(v => v >= s.low && v <= s.high).sort((a, b) => a - b);
    const roomy = places.every((v, i) => i === 0 || s.to(v) - s.to(places[i - 1]) > 8 + 7 * String(levels.get(v)).length);
    if (places.length > 1 && roomy) return places.map(value => ({ value, text: String(levels.get(value)) }));
    return ticks(s, this.width / 90);
  }

  events() {
    const a = this.area;
    let lastX = -100, row = 0;
    for (const e of this.figure.events || []) {
      const x = this.scale.x.to(e.at);
      row = x - lastX < 150 ? row + 1 : 0;
      lastX = x;
      const end = x > (a.left + a.right) / 2;
      const text = e.what.length > 42 ? e.what.slice(0, 41) + "…" : e.what;
      this.layer.append(svg("line", { class: "event", x1: x, x2: x, y1: a.top, y2: a.bottom }),
        svg("text", { class: "event-text", x: end ? x - 5 : x + 5, y: a.top + 8 + 14 * (row % 6), "text-anchor": end ? "end" : "start" }, text));
    }
  }

  series(s, index, count) {
    const g = svg("g", { class: `k${s.look.colour}${s.paper ? " paper" : ""}` });
    this.layer.append(g);
    const slot = this.figure.x.categories ? Math.abs(this.scale.x.to(1) - this.scale.x.to(0)) : 0;
    const width = Math.min(slot * 0.8 / count, 70), shift = (index - (count - 1) / 2) * width;
    if (s.traces && s.traces.length) this.traces(g, s);
    else if (this.figure.kind === "bar") for (const p of s.points) this.bar(g, s, p, width, shift);
    else if (this.figure.kind === "box") for (const p of s.points) this.boxOf(g, s, p, width, shift);
    else this.line(g, s, slot ? shift / 2 : s.paper ? 0 : (index - (count - 1) / 2) * 3); // a little aside, so that intervals do not hide each other
  }
}

// decadeBelow is where bars on a logarithmic axis begin: a power of ten, so that those of two figures can be compared.
function decadeBelow(v) {
  const below = 10 ** Math.floor(Math.log10(v) + 1e-9);
  return below > v * 0.9 ? below / 10 : below;
}

// range is from the least to the greatest; where they are the same, some room around it.
function range(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
  if (low > high || (low === 0 && high === 0)) return [0, 1];
  if (low === high) { const room = Math.abs(low) / 10 || 1; return [low - room, high + room]; }
  return [low, high];
}
