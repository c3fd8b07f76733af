"""Computes again, from result files alone, what `trivet bench report` says of them, and compares.

    recompute.py TRIVET RESULT.jsonl...

Nothing of Trivet is used but the result files, docs/results.md for what is in them, docs/experiments.md and docs/report.md for what is to be
computed, and numpy and scipy to compute it. What is compared is what `trivet bench report --text --json` prints: of figures each
mean, median, share, interval, box and distribution; of tables each number; of a paper ours, the ratio, and of each statement what became of it, with the
numbers that say so. Numbers must agree in four digits, intervals that are drawn at random within what chance allows. Exits with 1
where anything does not.
"""

import json
import math
import re
import subprocess
import sys
import warnings
from collections import Counter

import numpy as np
from scipy import stats

from results import QUANTILES, UNITS, Result, convert, mean, quantile, series_name
from statements import DRAWS, ENOUGH, Statement, bootstrap, by_wilson, two

UNIT = re.compile(r"(?<=\s)(?:" + "|".join(re.escape(u) for u in UNITS if u != "1") + r")(?![\w/])")  # as it stands behind a number


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
        if by_wilson(group, values):
            bounds = stats.binomtest(*group.share()).proportion_ci(0.95, method="wilson")
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
        values = g.by_run().get(t["run"])  # a line is a run, also by round
        if values is None:
            check.fail(False, "courses", where, f"run {t['run']}", "not of that group")
            continue
        check.equal("counts", where, t["n"], len(values))
        check.near("extremes of courses", where, min(t["y"]), min(values) * factor)
        check.near("extremes of courses", where, max(t["y"]), max(values) * factor)


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


def paper(result, shown_paper, check):
    defined = result.definition["paper"]
    for t, d in zip(shown_paper.get("trends", []), defined.get("trends", []), strict=True):
        statement = Statement(result, d)
        outcome, here, said = statement.judge()
        where = t["text"]
        check.equal("statements", where, t["outcome"], outcome)
        check.equal("statements' tests", where, t.get("here"), here)
        check.equal("statements by a model", where, t.get("by_model", False), (here or outcome) != "not measured" and statement.by_model())
        # "8.197 against 8.252 Gbit/s", "14.58 → 11.94 Gbit/s", "from 83.59 to 98.72 µs", "1.014 times [0.851, 1.315]"
        why = t["why"].split("; ")[0].rsplit(": ", 1)[-1] if d["is"] in ("above", "below", "times") and not re.match(r"[-−\d]", t["why"]) else t["why"]
        found, unit = numbers(why), UNIT.search(why)
        if not said or len(found) < len(said):
            continue
        factor = 1.0
        if d["is"] != "times" and unit:
            first = next(iter(result.pick(d, [], "at").values()))
            if UNITS.get(first.unit, (None,))[0] == UNITS[unit.group()][0]:
                factor = convert(first.unit, unit.group())
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


def one(trivet, path, by_round):
    """Compares one report of a result."""
    options = ["--by-round"] if by_round else []
    said = json.loads(subprocess.run([trivet, "bench", "report", path, "--text", "--json", *options], check=True, stdout=subprocess.PIPE).stdout)["results"][-1]
    result, check = Result(path, by_round), Checks()
    figures(result, said["figures"] or [], check)
    tables(result, said["tables"] or [], check)
    if said.get("paper"):
        paper(result, said["paper"], check)
    print(" ".join([path, *options]) + ": " + ", ".join(f"{n} {what}" for what, n in check.done.items()))
    for text in check.wrong[:20]:
        print("  " + text)
    if not check.done:
        print("  nothing was compared")
    return len(check.wrong) + (not check.done)


def main(trivet, paths):
    wrong = 0
    warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)  # of values that hardly differ
    for path in paths:
        campaign = Result(path).header["experiment"].get("rounds", 0) > 0
        for by_round in (False, True) if campaign else (False,):
            wrong += one(trivet, path, by_round)
    print(f"{wrong} differ" if wrong else "all agree")
    return wrong > 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
