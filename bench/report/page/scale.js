// Scales: from values to places and back.

function linear(low, high, from, to) {
  const k = (to - from) / (high - low);
  return { to: v => from + (v - low) * k, back: p => low + (p - from) / k, low, high, log: false };
}

function logarithmic(low, high, from, to) {
  const a = Math.log10(low), b = Math.log10(high), k = (to - from) / (b - a);
  return { to: v => from + (Math.log10(v) - a) * k, back: p => 10 ** (a + (p - from) / k), low, high, log: true };
}

// ticks are round numbers, about as many as asked for.
function ticks(scale, count) {
  if (scale.log && scale.high / scale.low > 20) return decades(scale, count);
  const span = scale.high - scale.low, rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= rough * 0.999) || 10 * power;
  const out = [];
  for (let i = Math.ceil(scale.low / step - 1e-9); i * step <= scale.high + span * 1e-9 && out.length < 50; i++) out.push(i * step);
  const digits = Math.max(0, Math.min(12, Math.ceil(-Math.log10(step) - 1e-9) + (step / power === 2.5 ? 1 : 0)));
  return out.map(v => ({ value: v, text: tickText(v, digits) }));
}

function decades(scale, count) {
  const first = Math.ceil(Math.log10(scale.low) - 1e-9), last = Math.floor(Math.log10(scale.high) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(2, count)));
  const out = [];
  for (let e = first; e <= last; e += every) {
    out.push({ value: 10 ** e, text: short(10 ** e) });
    if (last - first < 3) for (const m of [2, 5]) if (m * 10 ** e <= scale.high) out.push({ value: m * 10 ** e, text: short(m * 10 ** e) });
  }
  return out;
}

function tickText(v, digits) {
  const size = Math.abs(v);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return short(v);
  return grouped((Math.abs(v) < 1e-12 ? 0 : v).toFixed(digits));
}

// grouped sets the thousands of a whole number apart, from 10 000 on.
function grouped(text) {
  return /^-?\d{5,}$/.test(text) ? text.replace(/\B(?=(\d{3})+$)/g, "\u202f") : text;
}

// short writes a number with four significant digits.
function short(v) {
  if (v === null || !Number.isFinite(v)) return "–";
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size >= 1e7 || size < 1e-4) return v.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  return grouped(String(Number(size >= 1000 ? v.toFixed(0) : v.toPrecision(4))));
}
