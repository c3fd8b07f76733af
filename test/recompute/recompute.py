"""Computes again, from result files alone, what `trivet bench report` says of them, and compares.

    recompute.py TRIVET RESULT.jsonl...

Nothing of Trivet is used but the result files, docs/results.md for what is in them, docs/experiments.md and docs/report.md for what is to be
computed, and numpy and scipy to compute it. What is compared is what `trivet bench report --text --json` prints: of figures each
mean, median, share, interval, box and distribution; of tables each number; of a paper ours, the ratio, and of each statement what became of it, with the
numbers that say so. Numbers must agree in four digits, intervals that are drawn at random within what chance allows. Exits with 1
where anything does not.
"""

import fnmatch
import json
import math
import re
import subprocess
import sys
import warnings
from collections import Counter

import numpy as np
import yaml
from scipy import stats

ENOUGH, ALPHA, DRAWS = 5, 0.05, 20_000
UNITS = {"s": ("s", 1), "ms": ("s", 1e-3), "us": ("s", 1e-6), "µs": ("s", 1e-6), "ns": ("s", 1e-9), "bit/s": ("bit/s", 1), "kbit/s": ("bit/s", 1e3), "Mbit/s": ("bit/s", 1e6),
         "Gbit/s": ("bit/s", 1e9), "B/s": ("bit/s", 8), "kB/s": ("bit/s", 8e3), "KiB/s": ("bit/s", 8 * 1024), "MB/s": ("bit/s", 8e6), "B": ("B", 1), "kB": ("B", 1e3), "KiB": ("B", 1024), "MB": ("B", 1e6),
         "MiB": ("B", 2**20), "GiB": ("B", 2**30), "GB": ("B", 1e9), "1": ("1", 1), "%": ("1", 0.01)}
QUANTILES = {"median": 0.5, "p5": 0.05, "p95": 0.95, "p99": 0.99}


def convert(unit, to):
    """By what a value in one unit is to be multiplied to be in another."""
    if not to or unit == to:
        return 1.0
    (a, x), (b, y) = (UNITS.get(u, (u, 1)) for u in (unit, to))
    if a != b:
        raise ValueError(f"{unit} is not {to}")
    return x / y


def quantile(xs, p):
    return float(np.quantile(xs, p, method="median_unbiased"))


def mean(xs):
    return xs[0] if min(xs) == max(xs) else math.fsum(xs) / len(xs)


def plain(level):
    """A level as a text: 2.0 is 2."""
    if isinstance(level, bool):
        return str(level).lower()
    if isinstance(level, float) and level == int(level):
        return str(int(level))
    return str(level)


def same(a, b):
    a, b = plain(a), plain(b)
    try:
        return a == b or float(a) == float(b)
    except ValueError:
        return False


class Repetition:
    """What one run gave for a group."""

    def __init__(self, sample):
        self.values, self.at, self.count, self.of = [], [], 0, 0
        self.slot = (sample.get("block"), sample.get("pair", ""))

    def one(self, each):
        v = self.values
        if each in QUANTILES:
            return quantile(v, QUANTILES[each])
        simple = {"min": min, "max": max, "sum": math.fsum, "first": lambda x: x[0], "last": lambda x: x[-1], "count": lambda x: float(len(x))}
        if each in simple:
            return simple[each](v)
        return self.count / self.of if self.of > 0 else mean(v)


class Group:
    def __init__(self, unit):
        self.unit, self.runs = unit, {}

    def values(self, source):
        if source.get("of") == "values":
            return [v for r in self.runs.values() for v in r.values]
        return [r.one(source.get("each")) for r in self.runs.values()]


class Result:
    def __init__(self, path):
        last = {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                if not line.endswith("\n"):
                    break  # the run was interrupted there
                record = json.loads(line)
                if record["record"] == "header":
                    self.header = record
                elif record["record"] == "sample" and not record.get("warm_up"):
                    last.pop((record["run"], record["probe"]), None)
                    last[record["run"], record["probe"]] = record
        self.samples = [s for s in last.values() if not s.get("failure")]
        self.factors = {f["name"]: f["levels"] for f in self.header["experiment"].get("factors", [])}
        self.definition = yaml.load(self.header["experiment"]["text"], Loader=Texts)

    def measurements(self, sample, metric):
        if not metric.startswith("usage."):
            return [m for m in sample.get("measurements", []) if m["metric"] == metric]
        value = self.usage(sample.get("usage"), metric[len("usage."):])
        return [] if value is None or value[1] is None else [{"unit": value[0], "values": [value[1]]}]

    def usage(self, usage, name):
        """A number of the watch over the machine, with its unit."""
        if not usage:
            return None
        if name in ("busy", "busiest_look", "busiest_core", "user", "system", "softirq", "softirq_core", "steal", "pressure"):
            return "1", usage.get(name)
        if name in ("seconds", "run_queue", "run_queue_max", "context_switches"):
            return {"seconds": "s", "context_switches": "switches"}.get(name, "tasks"), usage.get(name)
        kind, _, rest = name.partition(".")
        if kind == "perf":
            return next((("events", c["value"]) for c in usage.get("perf") or [] if c["name"] == rest), None)
        which, _, what = rest.rpartition(".")
        among = which.split("+") if kind == "parts" else [which.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")]
        used = [(p["name"], p.get("user", 0) + p.get("system", 0), p.get("pss", 0)) for p in usage.get("processes") or [] if kind in ("processes", "parts")]
        used += [(c["name"], c.get("cpu", 0), c.get("pss", 0)) for c in usage.get("cgroups") or [] if kind in ("cgroups", "parts")]
        used = [u for u in used if any(fnmatch.fnmatchcase(u[0], a) for a in among)]
        if not used:
            return None
        return ("s", math.fsum(u[1] for u in used)) if what == "cpu" else ("B", float(sum(u[2] for u in used)))

    def level(self, sample, measurement, dimension):
        if dimension in (sample.get("factors") or {}):
            value = sample["factors"][dimension]
            return next((l for l in self.factors.get(dimension, []) if same(l, value)), plain(value))
        if dimension == "probe":
            return sample["probe"]
        if dimension == "round" and sample.get("round"):
            return str(sample["round"])
        return (measurement.get("labels") or {}).get(dimension)

    def pick(self, source, dimensions, where="where"):
        """Groups by their levels of the dimensions, in the order of the experiment's levels."""
        groups = {}
        condition = source.get(where) or {}
        for s in self.samples:
            if source.get("probe") and s["probe"] != source["probe"]:
                continue
            for m in self.measurements(s, source["metric"]):
                def fits(dimension, wanted):
                    level = self.level(s, m, dimension)
                    return level is not None and any(same(level, w) for w in (wanted if isinstance(wanted, list) else [wanted]))
                if not m.get("values") or not all(fits(d, w) for d, w in condition.items()):
                    continue
                levels = tuple(self.level(s, m, d) or "" for d in dimensions)
                g = groups.setdefault(levels, Group(m["unit"]))
                r = g.runs.setdefault(s["run"], Repetition(s))
                r.values += [v * convert(m["unit"], g.unit) for v in m["values"]]
                r.at += m.get("at") or []
                r.count, r.of = r.count + m.get("count", 0), r.of + m.get("of", 0)

        def order(levels):
            return [(self.factors.get(d, []).index(l) if l in self.factors.get(d, []) else -1, float(l) if number(l) else 0.0, len(l), l) for d, l in zip(dimensions, levels)]
        return dict(sorted(groups.items(), key=lambda item: order(item[0])))

    def varied(self, source, where="where"):
        return [f for f in self.factors if len(self.pick(source, [f], where)) > 1]


class Texts(yaml.SafeLoader):
    """Reads levels as they are written: 0.10, on, 1e3."""


Texts.yaml_implicit_resolvers = {}


def number(text):
    try:
        float(text)
        return True
    except (TypeError, ValueError):
        return False


def level_text(dimension, level):
    return f"{dimension} {level}" if level == "" or number(level) or level in ("true", "false") else level


def series_name(dimensions, levels):
    return ", ".join(level_text(d, l) for d, l in zip(dimensions, levels))


class Checks:
    """Counts what was compared, and keeps what differs."""

    def __init__(self):
        self.done, self.wrong = Counter(), []

    def near(self, kind, where, theirs, ours, digits=4):
        self.done[kind] += 1
        if ours is None or theirs is None:
            ok = ours is None and theirs is None
        else:
            ok = abs(theirs - ours) <= 0.5001 * 10 ** (math.floor(math.log10(abs(ours))) + 1 - digits) if ours else abs(theirs) < 1e-12
        self.fail(ok, kind, where, theirs, ours)

    def fail(self, ok, kind, where, theirs, ours):
        if not ok:
            self.wrong.append(f"{kind}: {where}: the report has {theirs}, computed again it is {ours}")

    def equal(self, kind, where, theirs, ours):
        self.done[kind] += 1
        self.fail(theirs == ours, kind, where, theirs, ours)

    def interval(self, where, theirs, group, source, middle, rounded=1e-9):
        """An interval: exact by Wilson, else between the quantiles that chance allows of a bootstrap of our own.
        rounded is by how much the report's may be off for having few digits."""
        low, high = theirs
        values = group.values(source)
        count, of = sum(r.count for r in group.runs.values()), sum(r.of for r in group.runs.values())
        if min(values) == max(values) and of > 0 and 0 <= count <= of:
            bounds = stats.binomtest(count, of).proportion_ci(0.95, method="wilson")
            self.near("intervals (Wilson)", where, low, bounds.low)
            self.near("intervals (Wilson)", where, high, bounds.high)
            return
        if len(values) < ENOUGH or source.get("of") == "values":
            self.equal("no intervals", where, low, None)
            return
        if min(values) == max(values):
            self.near("intervals (constant)", where, low, values[0])
            self.near("intervals (constant)", where, high, values[0])
            return
        drawn, at = bootstrap(np.array(values), middle)
        for bound, p in ((low, at[0]), (high, at[1])):
            chance = 4 * math.sqrt(p * (1 - p) * (1e-4 + 1 / DRAWS)) + 0.002  # of both: the report draws 10,000, and corrects by them
            least, most = np.quantile(drawn, [max(0, p - chance), min(1, p + chance)])
            self.done["intervals (bootstrap)"] += 1
            self.fail(bound is not None and least - rounded * abs(least) <= bound <= most + rounded * abs(most), "interval", where, bound, f"from {least} to {most}")


def bootstrap(values, middle):
    """The statistic of resamples, and at which of their quantiles an interval of 95 % ends."""
    rng = np.random.default_rng(1)
    resamples = rng.choice(values, (DRAWS, len(values)))
    if middle == "median":
        return np.median(resamples, axis=1), (0.025, 0.975)
    drawn, observed = resamples.mean(axis=1), values.mean()
    close = 1e-12 * max(abs(values))
    below = np.mean((drawn < observed - close) + 0.5 * (abs(drawn - observed) <= close))
    bias = stats.norm.ppf(np.clip(below, 0.5 / DRAWS, 1 - 0.5 / DRAWS))
    jackknife = (values.sum() - values) / (len(values) - 1)
    off = jackknife.mean() - jackknife
    acceleration = (off**3).sum() / (6 * ((off**2).sum()) ** 1.5)
    z = bias + stats.norm.ppf([0.025, 0.975])
    return drawn, tuple(stats.norm.cdf(bias + z / (1 - acceleration * z)))


def figures(result, shown, check):
    """Each figure of the report that the experiment's file has, by its title."""
    defined = {d.get("title") or d["metric"]: d for d in (result.definition.get("report") or {}).get("figures", [])}
    for f in shown:
        d = defined.get(f["title"])
        if d is None:
            check.done["figures that the file does not name"] += 1
            continue
        dims = [x for x in f["legend"].split(", ") if x]
        source = dict(d, of=d.get("of") or ("values" if f["kind"] in ("box", "cdf", "time") else None))
        points = f["kind"] not in ("cdf", "time")
        on_x = [f["x"]["label"]] if points and f["x"]["label"] else []
        groups = result.pick(source, on_x + dims)
        named = {(levels[0] if on_x else "", series_name(dims, levels[len(on_x):])): g for levels, g in groups.items()}
        check.done["figures"] += 1
        for s in f["series"]:
            if s.get("paper"):
                continue
            for p in s.get("points", []):
                point(f, source, s, p, named[p["name"], s["name"]], check)
            if s.get("traces"):
                traces(f, source, s, named["", s["name"]], check)


def point(f, source, s, p, g, check):
    where = f"{f['title']}, {s['name']}, {p['name']}"
    factor = convert(g.unit, f["y"]["unit"]) if source.get("each") != "count" else 1.0
    values = g.values(source)
    check.equal("counts", where, p.get("n", 0), len(values))
    if f["kind"] == "box":
        for name, q in (("q1", 0.25), ("median", 0.5), ("q3", 0.75)):
            check.near("quartiles", where, p["box"][name], quantile(values, q) * factor)
        q1, q3 = quantile(values, 0.25), quantile(values, 0.75)
        inside = [v for v in values if q1 - 1.5 * (q3 - q1) <= v <= q3 + 1.5 * (q3 - q1)]
        check.near("whiskers", where, p["box"]["low"], min(inside + [q1]) * factor)
        check.near("whiskers", where, p["box"]["high"], max(inside + [q3]) * factor)
        return
    middle = source.get("y") or "mean"
    check.near(middle + "s", where, p["y"], (mean(values) if middle == "mean" else quantile(values, 0.5)) * factor)
    scaled = [None if b is None else b / factor for b in (p["low"], p["high"])]
    check.interval(where, scaled, g, source, middle)


def traces(f, source, s, g, check):
    where = f"{f['title']}, {s['name']}"
    if f["kind"] == "cdf":
        factor = convert(g.unit, f["x"]["unit"])
        values = np.sort(np.array(g.values(source)) * factor)
        t = s["traces"][0]
        check.equal("counts", where, t["n"], len(values))
        for x, y in zip(t["x"], t["y"]):
            check.near("shares of distributions", f"{where}, {x}", x, float(values[min(len(values) - 1, max(0, round(y * len(values)) - 1))]), digits=5)
        return
    factor = convert(g.unit, f["y"]["unit"])
    for t in s["traces"]:
        r = g.runs[t["run"]]
        check.equal("counts", where, t["n"], len(r.values))
        check.near("extremes of courses", where, min(t["y"]), min(r.values) * factor)
        check.near("extremes of courses", where, max(t["y"]), max(r.values) * factor)


def numbers(text):
    """The numbers in a text, with thousands apart and powers."""
    return [float(n) for n in re.findall(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text.replace("\u202f", "").replace("−", "-"))]


def statistic(values, name):
    if name in QUANTILES:
        return quantile(values, QUANTILES[name])
    if name == "mean":
        return mean(values)
    if name in ("min", "max"):
        return (min if name == "min" else max)(values)
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) if name == "deviation" else np.var(values, ddof=1))


def tables(result, shown, check):
    defined = {d.get("title") or d["metric"]: d for d in (result.definition.get("report") or {}).get("tables", [])}
    for t in shown:
        d = defined.get(t["title"])
        if d is None:
            check.done["tables that the file does not name"] += 1
            continue
        check.done["tables"] += 1
        one_or_list = lambda v: v if isinstance(v, list) else [v]
        columns = one_or_list(d["columns"]) if d.get("columns") else []
        rows = t["columns"][:t["heads"] - (1 if columns and len(one_or_list(d.get("values", [0, 0]))) > 1 else 0)]
        values = one_or_list(d.get("values") or ["mean", "interval", "n"])
        groups = result.pick(d, rows + columns)
        heads, value = [], None
        for row in t["rows"]:
            texts = [c["text"] for c in row["cells"]]
            if any(texts[:len(rows)]):
                heads = texts[:len(rows)]
            if columns and t["heads"] > len(rows):
                value = {"std. deviation": "deviation", "95 % interval": "interval"}.get(texts[len(rows)], texts[len(rows)])
            elif columns:
                value = values[0]
            for i, text in enumerate(texts[t["heads"]:]):
                of = value if columns else values[i]
                column = t["columns"][t["heads"] + i]
                cell(result, d, t, groups, rows, columns, heads, column, of, text, check)


def cell(result, d, t, groups, rows, columns, heads, column, value, text, check):
    where = f"{t['title']}, {', '.join(heads)}, {column}, {value}"
    find = lambda row: next((g for levels, g in groups.items() if list(levels[:len(rows)]) == row and (not columns or series_name(columns, levels[len(rows):]) == column)), None)
    if " of the column" in heads[0]:
        return
    if d.get("gap") and heads[0] == " − ".join(d["gap"]):
        a, b = find([d["gap"][0]]), find([d["gap"][1]])
        if value in ("gap of means", "mean") and a and b:
            x, y, _ = two(a, b, d)
            check.near("gaps", where, numbers(text)[0], (mean(x) - mean(y)) * convert(a.unit, t["unit"]))
        return
    g = find(heads)
    if g is None:
        check.equal("empty cells", where, text, "–")
        return
    xs, factor = g.values(d), convert(g.unit, t["unit"])
    if value == "n":
        check.equal("counts", where, text, str(len(xs)))
    elif value == "interval":
        middle = "median" if "mean" not in d.get("values", ["mean"]) and "median" in d["values"] else "mean"
        if text != "–":
            low, high = numbers(text)
            check.interval(where, (low / factor, high / factor), g, d, middle, 6e-4)
        else:
            check.interval(where, (None, None), g, d, middle)
    else:
        ours = statistic(xs, value)
        check.near("cells of tables", where, numbers(text)[0] if text != "–" else None, None if ours is None else ours * (factor**2 if value == "variance" else factor))


def two(a, b, source):
    """The values of two groups: by pairs where each has a partner that was measured beside it."""
    others, seen, x, y = {}, set(), [], []
    for r in b.runs.values():
        others.setdefault(r.slot, []).append(r)
    reps = list(a.runs.values()) + list(b.runs.values())
    paired = all(r.slot[1] for r in reps) and all(len(o) == 1 for o in others.values()) and len({r.slot for r in a.runs.values()}) == len(a.runs)
    if paired:
        for r in a.runs.values():
            if r.slot in others:
                x.append(r.one(source.get("each")))
                y.append(others[r.slot][0].one(source.get("each")))
        if len(x) >= 2:
            return x, y, True
    return a.values(source), b.values(source), False


def p_of(x, y, paired, shift):
    """Two-sided, that the means differ by shift."""
    y = [v + shift for v in y]
    spread = [a - b for a, b in zip(x, y)] if paired else None
    if (paired and max(spread) - min(spread) == 0) or (not paired and min(x) == max(x) and min(y) == max(y)):
        return 1.0 if mean(x) - mean(y) == 0 else 0.0
    return float((stats.ttest_rel(x, y) if paired else stats.ttest_ind(x, y, equal_var=False)).pvalue)


def holm(ps):
    order, out, worst = sorted(range(len(ps)), key=lambda i: ps[i]), [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, ps[i] * (len(ps) - rank)))
        out[i] = worst
    return out


def equivalent(x, y, margin):
    if min(len(x), len(y)) < ENOUGH or margin == 0:
        return False
    if min(x) == max(x) and min(y) == max(y):
        return abs(x[0] - y[0]) < margin
    up = stats.ttest_ind(x, [v + margin for v in y], equal_var=False, alternative="less").pvalue
    down = stats.ttest_ind(x, [v - margin for v in y], equal_var=False, alternative="greater").pvalue
    return max(up, down) < ALPHA


def fieller(x, y, paired, confidence):
    """All ratios of the means that a t test does not refuse; None where they have no bounds."""
    a, b = mean(x), mean(y)
    va, vb = np.var(x, ddof=1) / len(x), np.var(y, ddof=1) / len(y)
    both = np.cov(x, y)[0, 1] / len(x) if paired else 0.0
    r = a / b
    if va == 0 and vb == 0:
        return r, r, r
    freedom = len(x) - 1 if paired else (va + r * r * vb) ** 2 / (va**2 / (len(x) - 1) + (r * r * vb) ** 2 / (len(y) - 1))
    t2 = stats.t.ppf((1 + confidence) / 2, freedom) ** 2
    roots = np.roots([b * b - t2 * vb, -2 * (a * b - t2 * both), a * a - t2 * va])
    if b * b - t2 * vb <= 0 or np.iscomplex(roots).any():
        return r, None, None
    return r, float(min(roots.real)), float(max(roots.real))


class Statement:
    """A paper's statement, judged again as docs/report.md says."""

    def __init__(self, result, definition):
        self.result, self.d = result, definition
        self.within = share(definition.get("within"), {"falls": 0.05, "rises": 0.05, "flat": 0.05, "linear": 0.1, "times": 0.2}.get(definition["is"], 0.0))

    def judge(self):
        """The outcome, and the numbers that its reason begins with."""
        kind = self.d["is"]
        if kind in ("falls", "rises", "flat", "linear"):
            groups = self.result.pick(self.d, [self.d["along"]], "at")
            if all(number(l[0]) for l in groups):
                groups = dict(sorted(groups.items(), key=lambda item: float(item[0][0])))
            if len(groups) < (3 if kind == "linear" else 2):
                return "not measured", []
            places = [float(l[0]) if all(number(m[0]) for m in groups) else i for i, l in enumerate(groups)]
            return getattr(self, kind if kind in ("flat", "linear") else "monotone")(places, list(groups.values()))
        dims = [self.d["along"]] if self.d.get("along") else self.free()
        groups = self.result.pick(self.d, dims, "at")
        if not isinstance(self.d["than"], dict):
            return self.limit(list(groups.values()))
        other = dict(self.d, at={**(self.d.get("at") or {}), **self.d["than"]})
        others = self.result.pick(other, dims, "at")
        pairs = [(g, others[levels]) for levels, g in groups.items() if levels in others]
        if not pairs:
            return "not measured", []
        return self.times(pairs) if kind == "times" else self.ordered(pairs)

    def free(self):
        than = self.d["than"] if isinstance(self.d["than"], dict) else {}
        return [f for f in self.result.factors if f not in (self.d.get("at") or {}) and f not in than]

    def monotone(self, places, groups):
        values = [g.values(self.d) for g in groups]
        xs, ys = [x for x, v in zip(places, values) for _ in v], [y for v in values for y in v]
        tau, p = kendall(xs, ys)
        start, end = mean(values[0]), mean(values[-1])
        sign = -1 if self.d["is"] == "falls" else 1
        change = 0.0 if end == start else sign * (end - start) / abs(start) if start else sign * math.inf * (1 if end > start else -1)
        said = [start, end]
        if equivalent(values[0], values[-1], self.within * abs(start)):
            return "does not hold", said
        if p < ALPHA and sign * tau > 0 and change >= self.within:
            return "holds", said
        return ("does not hold" if p < ALPHA and sign * tau < 0 and change < 0 else "cannot tell"), said

    def flat(self, places, groups):
        values = [g.values(self.d) for g in groups]
        means = [mean(v) for v in values]
        margin = self.within * abs(mean(means))
        alike, ps = True, []
        for i in range(len(values)):
            for j in range(i):
                alike = alike and equivalent(values[i], values[j], margin)
                apart = means[i] - means[j]
                ps.append(p_of(values[i], values[j], False, math.copysign(margin, apart)) if abs(apart) > margin and min(len(values[i]), len(values[j])) >= ENOUGH else 1.0)
        said = [min(means), max(means)]
        if alike:
            return "holds", said
        return ("does not hold" if min(holm(ps)) < ALPHA else "cannot tell"), said

    def linear(self, places, groups):
        values = [g.values(self.d) for g in groups]
        means = [mean(v) for v in values]
        line = stats.linregress(places, means)
        rise = abs(line.slope * (places[-1] - places[0]))
        _, p = kendall([x for x, v in zip(places, values) for _ in v], [y for v in values for y in v])
        said = [means[0], means[-1]]
        if p >= ALPHA:
            return "cannot tell", said
        outcomes = []
        for x, v, m in zip(places, values, means):
            off = abs(m - line.intercept - line.slope * x)
            if len(v) < ENOUGH:
                outcomes.append("cannot tell")
                continue
            half = lambda confidence: float(stats.t.ppf((1 + confidence) / 2, len(v) - 1) * np.std(v, ddof=1) / math.sqrt(len(v)))
            outcomes.append("holds" if off + half(1 - 2 * ALPHA) <= self.within * rise else "does not hold" if off - half(1 - ALPHA / len(values)) > self.within * rise else "cannot tell")
        return together(outcomes), said

    def times(self, pairs):
        factor, outcomes, said = float(self.d["factor"]), [], []
        for g, h in pairs:
            x, y, paired = two(g, h, self.d)
            if mean(y) == 0 or min(len(x), len(y)) < 2:
                outcomes.append("cannot tell")
                continue
            r, low, high = fieller(x, y, paired, 1 - 2 * ALPHA)
            _, least, most = fieller(x, y, paired, 1 - ALPHA / len(pairs))
            if low is None or least is None or min(len(x), len(y)) < ENOUGH:
                outcomes.append("cannot tell")
            elif factor * (1 - self.within) <= low and high <= factor * (1 + self.within):
                outcomes.append("holds")
            else:
                outcomes.append("does not hold" if most < factor * (1 - self.within) or least > factor * (1 + self.within) else "cannot tell")
            if len(pairs) == 1 and least is not None:
                said = [r, least, most]
        return together(outcomes), said

    def ordered(self, pairs):
        above = self.d["is"] == "above"
        places, said = [], []
        for g, h in pairs:
            x, y, paired = two(g, h, self.d)
            shift = self.within * abs(mean(y)) * (1 if above else -1)
            apart, up, down = mean(x) - mean(y), 1.0, 1.0
            if min(len(x), len(y)) >= ENOUGH:
                p = p_of(x, y, paired, shift)
                up, down = (p / 2, 1 - p / 2) if apart > shift else (1 - p / 2, p / 2)
                if apart == shift and min(x) == max(x) and min(y) == max(y):
                    up, down = (1.0, 0.0) if above else (0.0, 1.0)
            places.append((up, down) if above else (down, up))
            if len(pairs) == 1:
                said = [mean(x), mean(y)]
        return shown(places), said

    def limit(self, groups):
        if not groups:
            return "not measured", []
        places, said = [], []
        for g in groups:
            limit = float(self.d["than"]) * (convert(self.d["unit"], g.unit) if self.d.get("unit") else 1)
            values = g.values(self.d)
            count, of = sum(r.count for r in g.runs.values()), sum(r.of for r in g.runs.values())
            wilson = min(values) == max(values) and of > 0 and 0 <= count <= of
            if wilson:
                low, high = stats.binomtest(count, of).proportion_ci(0.95, method="wilson")
            elif len(values) < ENOUGH:
                low, high = -math.inf, math.inf
            elif min(values) == max(values):
                low = high = values[0]
            else:
                drawn, at = bootstrap(np.array(values), "mean")
                low, high = np.quantile(drawn, at)
            up, down = (0.0 if low > limit else 1.0), (0.0 if high < limit and not (low > limit) else 1.0)
            places.append((up, down) if self.d["is"] == "above" else (down, up))
            if len(groups) == 1:
                said = [mean(values)]
        return shown(places), said


def together(outcomes):
    if "does not hold" in outcomes:
        return "does not hold"
    return "holds" if all(o == "holds" for o in outcomes) else "cannot tell"


def shown(places):
    """Of p values for and against, place by place."""
    if all(p < ALPHA for p, _ in places):
        return "holds"
    return "does not hold" if min(holm([q for _, q in places])) < ALPHA else "cannot tell"


def kendall(xs, ys):
    """tau-b, and p by the normal approximation with corrections for ties (scipy's) and for continuity."""
    if len(set(xs)) < 2 or len(set(ys)) < 2:
        return 0.0, 1.0
    if len(xs) == 2:  # which scipy cannot; one pair, less the correction of 1, tells nothing
        return math.copysign(1.0, (xs[1] - xs[0]) * (ys[1] - ys[0])), 1.0
    tau, p = stats.kendalltau(xs, ys, method="asymptotic")
    s = np.sign(np.subtract.outer(xs, xs)) * np.sign(np.subtract.outer(ys, ys))
    s = abs(s.sum() / 2)
    z = abs(stats.norm.isf(p / 2))
    return float(tau), float(min(1.0, 2 * stats.norm.sf(z * max(0, s - 1) / s))) if s else 1.0


def share(text, otherwise):
    if text is None:
        return otherwise
    return float(text[:-1]) / 100 if text.strip().endswith("%") else float(text)


def paper(result, shown_paper, check):
    defined = result.definition["paper"]
    for t, d in zip(shown_paper.get("trends", []), defined.get("trends", []), strict=True):
        outcome, said = Statement(result, d).judge()
        where = t["text"]
        check.equal("statements", where, t["outcome"], outcome)
        # "8.197 against 8.252 Gbit/s", "14.58 → 11.94 Gbit/s", "from 83.59 to 98.72 µs", "1.014 times [0.851, 1.315]"
        why = t["why"].split("; ")[0].rsplit(": ", 1)[-1] if d["is"] in ("above", "below", "times") and not re.match(r"[-−\d]", t["why"]) else t["why"]
        found, unit = numbers(why), re.search(r"(?:Gbit/s|Mbit/s|kbit/s|bit/s|µs|ms|MiB|KiB|GiB|kB|MB| s\b| %| B\b)", why)
        if not said or len(found) < len(said):
            continue
        factor = 1.0
        if d["is"] != "times" and unit and unit.group().strip() in UNITS:
            first = next(iter(result.pick(d, [], "at").values()))
            if UNITS.get(first.unit, (None,))[0] == UNITS[unit.group().strip()][0]:
                factor = convert(first.unit, unit.group().strip())
        for theirs, ours in zip(found, said):
            check.near("numbers of statements", f"{where} ({why[:60]})", theirs, ours * factor)
    beside(result, shown_paper, defined, check)


def each(defined):
    """A paper's numbers, each with all of its levels."""
    for n in defined.get("numbers", []):
        ones = [n]
        if "along" in n:
            ones = [dict(n, levels={**(n.get("levels") or {}), n["along"]: level}, value=v) for level, v in n["values"].items()]
        for one in ones:
            apart = one.get("apart")
            among = one["levels"][apart] if apart else [None]
            for level in among if isinstance(among, list) else [among]:
                yield dict(one, levels={**one["levels"], apart: level}) if apart else one


def spoken(levels):
    return ", ".join(f"{d} {' or '.join(l if isinstance(l, list) else [l])}" for d, l in (levels or {}).items())


def spreads(result, shown_paper, wanted, check):
    """Deviations and variances: of the means of levels, and of all repetitions of these."""
    found = shown_paper.get("spreads") or []
    check.equal("spreads, how many", "paper", len(found), len(wanted))
    for n, shown in zip(wanted, found):
        where = f"{shown['of']} of {shown['metric']} over {shown['over']}, {shown['where']}"
        check.equal("what spreads are", where, [shown["of"], shown["over"], shown["where"], float(shown["theirs"])],
                    [n["spread"], n["over"], spoken(n.get("levels")), float(n["value"])])
        groups = result.pick(n, [n["over"]], "levels")
        if len(groups) < 2:
            check.equal("not measured", where, shown["ours"], "")
            continue
        of = np.var if n["spread"] == "variance" else np.std
        values = [np.array(g.values(n)) * convert(g.unit, n.get("unit")) for g in groups.values()]
        ours = float(of([mean(list(v)) for v in values], ddof=1))
        check.near("spreads of means", where, numbers(shown["ours"])[0], ours)
        check.near("spreads of all repetitions", where, numbers(shown["pooled"])[0], float(of(np.concatenate(values), ddof=1)))
        check.equal("sizes of spreads", where, [shown["means"], shown["n"]], [len(values), sum(len(v) for v in values)])
        if float(n["value"]):
            check.near("ratios of spreads", where, numbers(shown["ratio"])[0], ours / float(n["value"]))


def beside(result, shown_paper, defined, check):
    """Ours beside theirs, where the report lists them one by one, and spreads."""
    wanted = list(each(defined))
    spreads(result, shown_paper, [n for n in wanted if "spread" in n], check)
    wanted = [n for n in wanted if "spread" not in n]
    for shown_number in shown_paper.get("numbers") or []:
        n = next((w for w in wanted if float(w["value"]) == float(shown_number["theirs"]) and
                  spoken(w.get("levels")) == shown_number["where"] and
                  shown_number["metric"].replace(" ", "_").startswith(w["metric"].replace(" ", "_")) and w.get("probe", "") in shown_number["metric"]), None)
        if n is None:
            check.done["numbers that were not found again"] += 1
            continue
        groups = result.pick(n, [], "levels")
        where = f"{shown_number['metric']}, {shown_number['where']}"
        if not groups:
            check.equal("not measured", where, shown_number["ours"], "")
            continue
        g = groups[()]
        ours = (quantile(g.values(n), 0.5) if n.get("y") == "median" else mean(g.values(n))) * convert(g.unit, n.get("unit"))
        check.near("numbers beside a paper's", where, numbers(shown_number["ours"])[0], ours)
        if float(n["value"]):
            check.near("ratios to a paper's", where, numbers(shown_number["ratio"])[0], ours / float(n["value"]))


def main(trivet, paths):
    wrong = 0
    warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)  # of values that hardly differ
    for path in paths:
        said = json.loads(subprocess.run([trivet, "bench", "report", path, "--text", "--json"], check=True, stdout=subprocess.PIPE).stdout)["results"][-1]
        result, check = Result(path), Checks()
        figures(result, said["figures"] or [], check)
        tables(result, said["tables"] or [], check)
        if said.get("paper"):
            paper(result, said["paper"], check)
        print(f"{path}: " + ", ".join(f"{n} {what}" for what, n in check.done.items()))
        for text in check.wrong[:20]:
            print("  " + text)
        wrong += len(check.wrong)
        if not check.done:
            print("  nothing was compared")
            wrong += 1
    print(f"{wrong} differ" if wrong else "all agree")
    return wrong > 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
