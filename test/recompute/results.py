"""Reads result files, as docs/results.md says, and groups their values, as docs/report.md says."""

import fnmatch
import json
import math

import numpy as np
import yaml

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


SIMPLE = {"min": min, "max": max, "sum": math.fsum, "first": lambda x: x[0], "last": lambda x: x[-1], "count": lambda x: float(len(x))}


class Repetition:
    """What counts once in a group: of one run, or of all runs of a round."""

    def __init__(self, sample, by_round):
        self.by_run, self.shares = {}, {}  # values, and how many of how many, by run
        self.slot = (sample["round"] if by_round else sample.get("repetition"), sample.get("pair", ""))

    @property
    def values(self):
        return [v for values in self.by_run.values() for v in values]

    def share(self):
        """How many of how many."""
        return sum(count for count, _ in self.shares.values()), sum(of for _, of in self.shares.values())

    def drop(self, run):
        self.by_run.pop(run, None)
        self.shares.pop(run, None)

    def one(self, each):
        """A round, of which something else than the mean is asked for, is the mean of its runs."""
        if each in QUANTILES:
            return mean([quantile(v, QUANTILES[each]) for v in self.by_run.values()])
        if each in SIMPLE:
            return mean([SIMPLE[each](v) for v in self.by_run.values()])
        count, of = self.share()
        return count / of if of > 0 else mean(self.values)


class Group:
    def __init__(self, unit):
        self.unit, self.repetitions = unit, {}  # by run, or by cell and round

    def values(self, source):
        if source.get("of") == "values":
            return [v for r in self.repetitions.values() for v in r.values]
        return [r.one(source.get("each")) for r in self.repetitions.values()]

    def by_run(self):
        return {run: values for r in self.repetitions.values() for run, values in r.by_run.items()}

    def share(self):
        """How many of how many."""
        shares = [r.share() for r in self.repetitions.values()]
        return sum(count for count, _ in shares), sum(of for _, of in shares)


class Result:
    def __init__(self, path, by_round=False):
        self.by_round, last = by_round, {}
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
        self.failed = [s for s in last.values() if s.get("failure")]
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
                if not m.get("values") or not all(among(self.level(s, m, d), w) for d, w in condition.items()):
                    continue
                levels = tuple(self.level(s, m, d) or "" for d in dimensions)
                g = groups.setdefault(levels, Group(m["unit"]))
                together = self.by_round and s.get("round", 0) > 0
                r = g.repetitions.setdefault((s["cell"], s["round"]) if together else s["run"], Repetition(s, together))
                r.by_run.setdefault(s["run"], []).extend(v * convert(m["unit"], g.unit) for v in m["values"])
                count, of = r.shares.get(s["run"], (0, 0))
                r.shares[s["run"]] = count + m.get("count", 0), of + m.get("of", 0)
        if source.get("each") in ("sum", "count"):
            groups = {levels: g for levels, g in groups.items() if self.whole(g, levels, source, dimensions, condition)}

        def order(levels):
            return [(self.factors.get(d, []).index(l) if l in self.factors.get(d, []) else -1, float(l) if number(l) else 0.0, len(l), l) for d, l in zip(dimensions, levels)]
        return dict(sorted(groups.items(), key=lambda item: order(item[0])))

    def whole(self, group, levels, source, dimensions, condition):
        """Leaves of a group of sums only the runs in which nothing failed that belongs to them; false where none is left."""
        giving = {s["probe"] for s in self.samples if self.measurements(s, source["metric"])}
        wanted = list(zip(dimensions, levels)) + list(condition.items())
        for s in self.failed:
            told = [(self.level(s, {}, dimension), w) for dimension, w in wanted]  # None of a label, which may be any
            if s["probe"] in giving and (source.get("probe") or s["probe"]) == s["probe"] and all(level is None or among(level, w) for level, w in told):
                for r in group.repetitions.values():
                    r.drop(s["run"])
        group.repetitions = {key: r for key, r in group.repetitions.items() if r.by_run}
        return bool(group.repetitions)

    def varied(self, source, where="where"):
        return [f for f in self.factors if len(self.pick(source, [f], where)) > 1]


def among(level, wanted):
    """Whether a level is one of those of a condition, which may be one or a list."""
    return level is not None and any(same(level, w) for w in (wanted if isinstance(wanted, list) else [wanted]))


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
