// The marks of a figure, and what happens under the pointer.

Object.assign(Plot.prototype, {
  mark(s, x, y, title, lines) { this.marks.push({ x, y, title, lines }); },

  whisker(g, name, x, p, half) {
    if (p.low === null || p.high === null || (this.scale.y.log && p.low <= 0)) return;
    const low = this.scale.y.to(p.low), high = this.scale.y.to(p.high);
    g.append(svg("path", { class: name, d: `M${x} ${low}V${high}M${x - half} ${low}h${2 * half}M${x - half} ${high}h${2 * half}` }));
  },

  // say lists what is known of a point.
  say(s, p) {
    const f = this.figure, unit = f.y.unit && f.y.unit !== "1" ? " " + f.y.unit : "";
    const lines = [];
    if (p.box) lines.push(`median ${short(p.box.median)}${unit}`, `quartiles ${short(p.box.q1)} and ${short(p.box.q3)}`, `whiskers ${short(p.box.low)} and ${short(p.box.high)}`);
    else lines.push(short(p.y) + unit);
    if (p.low !== null && !p.box) lines.push(`95 %: ${short(p.low)} to ${short(p.high)}`);
    if (p.n) lines.push(`n = ${p.n}`);
    if (p.level && p.level !== "good") lines.push(`${p.level}: ${p.why}`);
    const at = f.x.label ? `${f.x.label} ${p.name}` : p.name;
    return [[s.label, at].filter(Boolean).join(" · "), lines];
  },

  dots(g, p, x) {
    if (!this.each || !p.values) return;
    p.values.forEach((v, i) => {
      if (this.scale.y.log && v <= 0) return;
      g.append(svg("circle", { class: this.figure.kind === "bar" ? "each ink" : "each", r: 2.5, cx: x + 5 * Math.sin(i * 2.4), cy: this.scale.y.to(v) }));
    });
  },

  line(g, s, shift) {
    const sx = this.scale.x, sy = this.scale.y;
    const points = s.points.filter(p => (!sx.log || p.x > 0) && (!sy.log || p.y > 0));
    const at = points.map(p => [sx.to(p.x) + shift, sy.to(p.y)]);
    g.append(svg("path", { class: `curve dash${s.look.dash}`, d: at.map(([x, y], i) => `${i ? "L" : "M"}${x} ${y}`).join("") }));
    points.forEach((p, i) => {
      const [x, y] = at[i];
      this.dots(g, p, x);
      this.whisker(g, "whisker", x, p, 4);
      const suspect = p.level && p.level !== "good";
      if (s.paper) g.append(svg("path", { class: "dot hollow", d: `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x - 4} ${y + 4}L${x + 4} ${y - 4}` }));
      else g.append(svg("circle", { class: suspect ? "dot hollow" : "dot", cx: x, cy: y, r: 4 }));
      this.mark(s, x, y, ...this.say(s, p));
    });
  },

  bar(g, s, p, width, shift) {
    const sy = this.scale.y, x = this.scale.x.to(p.x) + shift, y = sy.to(p.y);
    const base = sy.log ? this.area.bottom : sy.to(Math.max(sy.low, Math.min(0, sy.high)));
    const suspect = p.level && p.level !== "good";
    g.append(svg("rect", { class: suspect ? "bar pale" : "bar", x: x - width * 0.45, width: Math.max(1, width * 0.9), y: Math.min(y, base) - (y === base ? 1 : 0), height: Math.abs(base - y) || 1 }));
    this.dots(g, p, x);
    this.whisker(g, "bar-whisker", x, p, Math.min(6, width / 4));
    this.mark(s, x, y, ...this.say(s, p));
  },

  boxOf(g, s, p, width, shift) {
    const sy = v => this.scale.y.to(v), x = this.scale.x.to(p.x) + shift, half = Math.max(2, width * 0.4), b = p.box;
    g.append(svg("path", { class: "whisker", d: `M${x} ${sy(b.low)}V${sy(b.q1)}M${x} ${sy(b.q3)}V${sy(b.high)}M${x - half / 2} ${sy(b.low)}h${half}M${x - half / 2} ${sy(b.high)}h${half}` }),
      svg("rect", { class: "box", x: x - half, width: 2 * half, y: sy(b.q3), height: Math.max(0.5, sy(b.q1) - sy(b.q3)) }),
      svg("line", { class: "median", x1: x - half, x2: x + half, y1: sy(b.median), y2: sy(b.median) }));
    for (const v of b.out || []) g.append(svg("circle", { class: "dot hollow", r: 2.2, cx: x, cy: sy(v) }));
    this.mark(s, x, sy(b.median), ...this.say(s, p));
  },

  traces(g, s) {
    const sx = this.scale.x, sy = this.scale.y, steps = this.figure.kind === "cdf";
    const unit = a => a.unit && a.unit !== "1" ? " " + a.unit : "";
    for (const t of s.traces) {
      let d = "";
      t.x.forEach((v, i) => {
        if ((sx.log && v <= 0) || (sy.log && t.y[i] <= 0)) return;
        const x = sx.to(v).toFixed(1), y = sy.to(t.y[i]).toFixed(1);
        d += d === "" ? `M${x} ${y}` : steps ? `H${x}V${y}` : `L${x} ${y}`;
        const value = steps ? `${short(100 * t.y[i])} % of ${t.n} values are at most ${short(v)}${unit(this.figure.x)}` : `${short(t.y[i])}${unit(this.figure.y)} at ${short(v)} s`;
        this.marks.push({ x: Number(x), y: Number(y), title: s.label + (t.run ? ` · run ${t.run}` : ""), lines: [value] });
      });
      g.append(svg("path", { class: `curve dash${s.look.dash}${s.traces.length > 1 ? " thin" : ""}`, d }));
    }
  },

  buildLegend() {
    const legend = node("div", "legend"), f = this.figure;
    if (f.series.length > 1) {
      if (f.legend) legend.append(node("span", "dims", f.legend));
      for (const s of f.series) legend.append(this.toggle(s));
    }
    if (f.series.some(s => (s.points || []).some(p => (p.values || []).length > 1))) {
      const b = node("button", "tool", "Repetitions");
      b.type = "button";
      b.title = "Show the value of each repetition";
      b.setAttribute("aria-pressed", String(this.each));
      b.addEventListener("click", () => { this.each = !this.each; b.setAttribute("aria-pressed", String(this.each)); this.draw(); });
      legend.append(b);
    }
    this.reset = node("button", "tool", "Reset zoom");
    this.reset.type = "button";
    this.reset.hidden = true;
    this.reset.addEventListener("click", () => this.zoom(null));
    legend.append(this.reset);
    this.box.append(legend);
  },

  toggle(s) {
    const b = node("button", `k${s.look.colour}`);
    b.type = "button";
    b.setAttribute("aria-pressed", "true");
    b.append(node("span", s.paper ? "swatch paper" : "swatch"), node("span", "", s.label));
    b.addEventListener("click", () => {
      if (!this.hidden.delete(s.index)) this.hidden.add(s.index);
      b.setAttribute("aria-pressed", String(!this.hidden.has(s.index)));
      this.draw();
    });
    return b;
  },

  zoom(view) {
    this.view = view;
    this.reset.hidden = view === null;
    this.tip.hidden = true;
    this.draw();
  },

  // at is where the pointer is, in the picture's own coordinates.
  at(event) {
    const r = this.svg.getBoundingClientRect();
    return { x: (event.clientX - r.left) * this.width / r.width, y: (event.clientY - r.top) * this.height / r.height, k: r.width / this.width };
  },

  listen() {
    let start = null, frame = null;
    this.svg.addEventListener("pointerdown", e => {
      if (e.pointerType === "touch" || e.button !== 0) return;
      start = this.at(e);
      this.svg.setPointerCapture(e.pointerId);
    });
    this.svg.addEventListener("pointermove", e => {
      const p = this.at(e);
      if (start && (frame || Math.hypot(p.x - start.x, p.y - start.y) > 8)) {
        if (!frame) this.svg.append(frame = svg("rect", { class: "select" }));
        this.tip.hidden = true;
        for (const [k, v] of Object.entries({ x: Math.min(p.x, start.x), y: Math.min(p.y, start.y), width: Math.abs(p.x - start.x), height: Math.abs(p.y - start.y) })) frame.setAttribute(k, v);
        return;
      }
      this.hover(p);
    });
    this.svg.addEventListener("pointerup", e => {
      if (start && frame) this.select(start, this.at(e));
      if (frame) frame.remove();
      start = frame = null;
    });
    this.svg.addEventListener("pointerleave", () => { if (!start) this.tip.hidden = true; });
    this.svg.addEventListener("dblclick", () => this.zoom(null));
    let width = 0;
    new ResizeObserver(() => { if (Math.abs(this.box.clientWidth - width) > 2) { width = this.box.clientWidth; this.draw(); } }).observe(this.box);
  },

  select(a, b) {
    const sx = this.scale.x, sy = this.scale.y;
    const order = (p, q) => p < q ? [p, q] : [q, p];
    const x = order(sx.back(a.x), sx.back(b.x)), y = order(sy.back(a.y), sy.back(b.y));
    if (x[1] > x[0] && y[1] > y[0]) this.zoom({ x, y });
  },

  // hover shows what is nearest.
  hover(p) {
    let best = null, distance = 45;
    for (const m of this.marks) {
      const d = Math.hypot(m.x - p.x, (m.y - p.y) * (this.figure.kind === "bar" ? 0.2 : 1));
      if (d < distance) { distance = d; best = m; }
    }
    this.tip.hidden = best === null;
    if (!best) return;
    this.tip.replaceChildren(node("strong", "", best.title), ...best.lines.map(t => node("div", "", t)));
    const left = this.svg.offsetLeft + best.x * p.k, top = this.svg.offsetTop + best.y * p.k;
    const width = this.tip.offsetWidth, height = this.tip.offsetHeight;
    this.tip.style.left = Math.max(4, Math.min(left + 14, this.box.clientWidth - width - 4)) + "px";
    this.tip.style.top = (top - height - 12 < 0 ? top + 14 : top - height - 12) + "px";
  },
});

for (const box of document.querySelectorAll(".plot")) {
  const data = document.getElementById(box.dataset.figure);
  if (data) new Plot(box, JSON.parse(data.textContent));
}
