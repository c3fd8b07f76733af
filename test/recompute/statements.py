"""Intervals and tests, and the statements of a paper that are judged by them, as docs/report.md says."""

import math

import numpy as np
from scipy import stats

import sequential
from results import among, convert, mean, number

ENOUGH, ALPHA, DRAWS = 5, 0.05, 20_000


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


def by_wilson(group, values):
    """Whether the interval is Wilson's: of shares of which no repetition differs, where there are enough, or nothing was lost, or all was."""
    count, of = group.share()
    return min(values) == max(values) and of > 0 and (len(group.repetitions) >= ENOUGH or count in (0, of))


def two(a, b, source):
    """The values of two groups: by pairs where each has a partner that was measured beside it."""
    others, seen, x, y = {}, set(), [], []
    for r in b.repetitions.values():
        others.setdefault(r.slot, []).append(r)
    reps = list(a.repetitions.values()) + list(b.repetitions.values())
    paired = all(r.slot[1] for r in reps) and all(len(o) == 1 for o in others.values()) and len({r.slot for r in a.repetitions.values()}) == len(a.repetitions)
    if paired:
        for r in a.repetitions.values():
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


def equivalent(x, y, margin, alpha):
    if min(len(x), len(y)) < ENOUGH or margin == 0:
        return False
    if min(x) == max(x) and min(y) == max(y):
        return abs(x[0] - y[0]) < margin
    up = stats.ttest_ind(x, [v + margin for v in y], equal_var=False, alternative="less").pvalue
    down = stats.ttest_ind(x, [v - margin for v in y], equal_var=False, alternative="greater").pvalue
    return max(up, down) < alpha


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
        self.looks = sequential.shares(result)
        self.alpha = self.level(ALPHA)

    def level(self, alpha):
        """Of a test whose share of the error rate is alpha: less, where there were several looks."""
        return sequential.level(self.looks, alpha) if self.looks else alpha

    def significant(self, ps):
        """Whether any of tests that are read together is (the first step of Holm)."""
        return min(ps) < self.level(ALPHA / len(ps))

    def judge(self):
        """The outcome, what the test says where that is another, and the numbers that its reason begins with."""
        tested, said = self.measured()
        outcome = self.lacking(tested) or tested
        if self.d.get("contradicts"):
            outcome = "contradicts itself"
        return outcome, None if outcome == tested else tested, said

    def lacking(self, tested):
        """The outcome of a statement that needs what was not there, as far as the result says what was."""
        needs, cpu = self.d.get("needs"), self.result.header["environment"].get("cpu") or {}
        if needs == "kvm":
            return "needs KVM" if tested != "not measured" and self.emulated() else None
        if needs == "smt":
            return None if cpu.get("smt") in ("on", "off") else "needs SMT"
        if needs == "device":
            return None if self.on_device() else "needs the device"
        if needs == "load":
            return "needs a faster machine" if self.behind() else None
        if needs:
            return None if cpu.get("usable", 0) >= int(needs["processors"]) else f"needs {needs['processors']} processors"
        return None

    def sampled(self, at):
        """The usage of the samples that were watched and have values under a condition."""
        for s in self.watched(at):
            yield s["usage"]

    def behind(self):
        """Whether in most samples of both sides a sender was so far behind that they are bad."""
        was = [any(r.get("code") == "sender" and r.get("level") == "bad" for r in (s.get("verdict") or {}).get("reasons") or [])
               for at in self.sides() for s in self.watched(at)]
        return 2 * sum(was) > len(was)

    def watched(self, at):
        """The samples that were watched and have values under a condition."""
        for s in self.result.samples:
            if s.get("usage") and self.d.get("probe", s["probe"]) == s["probe"] and any(
                    all(among(self.result.level(s, m, f), w) for f, w in at.items()) for m in self.result.measurements(s, self.d["metric"])):
                yield s

    def on_device(self):
        """Whether a sample of whom the statement is about was made with a device as a node, and none that is a model of one."""
        return any(u.get("devices") and not u.get("models") for u in self.sampled(self.d.get("at") or {}))

    def by_model(self):
        """Whether in any sample of either side nodes stood for devices, as a model."""
        return any(u.get("models") for at in self.sides() for u in self.sampled(at))

    def sides(self):
        """The conditions of both sides; of one that is compared with nothing, or with a number, the only one twice."""
        at = self.d.get("at") or {}
        return at, {**at, **self.d["than"]} if isinstance(self.d.get("than"), dict) else at

    def emulated(self):
        """Whether any sample of either side had processors that QEMU emulated."""
        return any("tcg" in (u.get("accelerators") or {}).values() for at in self.sides() for usage in self.sampled(at)
                   for u in [usage, *(usage.get("sites") or {}).values()])

    def measured(self):
        kind = self.d["is"]
        if self.d.get("of") == "slope":
            return self.slope()
        if self.d.get("of") == "curvature":
            return self.curvature()
        if kind in ("falls", "rises", "flat", "linear"):
            groups = self.result.pick(self.d, [self.d["along"]], "at")
            if all(number(l[0]) for l in groups):
                groups = dict(sorted(groups.items(), key=lambda item: float(item[0][0])))
            if len(groups) < (3 if kind == "linear" else 2):
                return "not measured", []
            places = [float(l[0]) if all(number(m[0]) for m in groups) else i for i, l in enumerate(groups)]
            return getattr(self, kind if kind in ("flat", "linear") else "monotone")(places, list(groups.values()))
        if kind == "steeper":
            return self.steeper(), []
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

    def courses(self, groups):
        """The values of the repetitions that have all levels, by level, with the places in which they were measured."""
        found = {}
        for i, g in enumerate(groups):
            for r in g.repetitions.values():
                found.setdefault(r.slot[0], {}).setdefault(i, []).append(r)
        whole = [[by[i] for i in range(len(groups))] for by in found.values() if len(by) == len(groups)]
        return [([mean([r.one(self.d.get("each")) for r in reps]) for reps in levels], [reps[0].slot if len(reps) == 1 else (None, "") for reps in levels]) for levels in whole]

    def slope(self):
        """Slopes of least squares, one of each repetition, at each place; then as means are compared."""
        along, limit = self.d["along"], not isinstance(self.d["than"], dict)
        dims = [f for f in self.free() if f != along]
        (ours, theirs), outcomes, places, said = [self.result.pick(dict(self.d, at=at, of=None), dims + [along], "at") for at in self.sides()], [], [], []
        tests = []
        for place in dict.fromkeys(levels[:-1] for levels in ours):
            levels = [l for l in ours if l[:-1] == place and l in theirs]
            if len(levels) < 2 or not all(number(l[-1]) for l in levels):
                continue
            xs = np.array([float(l[-1]) for l in levels])
            a, b = (self.courses([g[l] for l in levels]) for g in (ours, theirs))
            rise = lambda c: float(np.polyfit(xs, c[0], 1)[0])
            x, y, paired = [rise(c) for c in a], [rise(c) for c in b], False
            if all(pair for c in a + b for _, pair in c[1]):
                partners = [(rise(c), rise(o)) for c in a for o in b if o[1] == c[1]]
                if len(partners) >= 2:
                    x, y, paired = [p[0] for p in partners], [p[1] for p in partners], True
            if x and y:
                tests.append((x, y, paired, ours[levels[0]].unit))
        if not tests:
            return "not measured", []
        for x, y, paired, unit in tests:
            few = min(len(x), len(y)) < ENOUGH
            if limit:
                bound = float(self.d["than"]) * (convert(self.d["unit"], unit) if self.d.get("unit") else 1)
                p = 1.0 if few else float(stats.ttest_1samp(x, bound).pvalue)
                up, down = (p if mean(x) > bound else 1.0), (p if mean(x) < bound else 1.0)
                said = [mean(x)]
            elif self.d["is"] == "times":
                outcome, said = self.ratio(x, y, paired, len(tests))
                outcomes.append(outcome)
                continue
            else:
                up, down = self.beside(x, y, paired)
                said = [mean(x), mean(y)]
            places.append((up, down) if self.d["is"] == "above" else (down, up))
        said = said if len(tests) == 1 else []
        return (together(outcomes) if self.d["is"] == "times" else self.shown(places)), said

    def curvature(self):
        """How far parabolas of least squares bend, as a share of what they rise."""
        groups = {l: g for l, g in self.result.pick(self.d, [self.d["along"]], "at").items()}
        if len(groups) < 3 or not all(number(l[0]) for l in groups):
            return "not measured", []
        xs = np.array([float(l[0]) for l in groups])
        low, high = int(xs.argmin()), int(xs.argmax())
        ends = [mean(list(groups.values())[i].values(dict(self.d, of=None))) for i in (low, high)]
        fits = [np.polyfit((2 * xs - xs.min() - xs.max()) / (xs.max() - xs.min()), c[0], 2) for c in self.courses(list(groups.values()))]
        if len(fits) < ENOUGH:
            return "cannot tell", ends
        bends, rises = [float(f[0]) for f in fits], [2 * float(f[1]) for f in fits]
        _, least, most = fieller(bends, rises, True, 1 - 2 * self.alpha)
        _, low, high = fieller(bends, rises, True, 1 - self.alpha)
        if least is None or low is None:
            return "cannot tell", ends
        if -self.within <= least and most <= self.within:
            return "holds", ends
        return ("does not hold" if low > self.within or high < -self.within else "cannot tell"), ends

    def steeper(self):
        """By the slopes of logarithms along the factor, one of each repetition that has all levels."""
        sides = []
        for at in (self.d.get("at"), {**(self.d.get("at") or {}), **self.d["than"]}):
            groups = self.result.pick(dict(self.d, at=at), [self.d["along"]], "at")
            levels = sorted(groups, key=lambda l: float(l[0])) if all(number(l[0]) for l in groups) else list(groups)
            places = [float(l[0]) if all(number(m[0]) for m in levels) else i for i, l in enumerate(levels)]
            found = {}
            for i, l in enumerate(levels):
                for r in groups[l].repetitions.values():
                    found.setdefault(r.slot[0], {}).setdefault(i, []).append(r.one(self.d.get("each")))
            whole = [[mean(by[i]) for i in range(len(levels))] for by in found.values() if len(by) == len(levels)]
            if len(levels) < 2 or not whole or min(min(v) for v in whole) <= 0:
                return "not measured"
            sides.append([float(stats.linregress(places, np.log(v)).slope) for v in whole])
        x, y = sides
        if min(len(x), len(y)) < ENOUGH or p_of(x, y, False, 0) >= self.alpha:
            return "cannot tell"
        return "holds" if mean(x) > mean(y) else "does not hold"

    def monotone(self, places, groups):
        values = [g.values(self.d) for g in groups]
        xs, ys = [x for x, v in zip(places, values) for _ in v], [y for v in values for y in v]
        tau, p = kendall(xs, ys)
        start, end = mean(values[0]), mean(values[-1])
        sign = -1 if self.d["is"] == "falls" else 1
        change = 0.0 if end == start else sign * (end - start) / abs(start) if start else sign * math.inf * (1 if end > start else -1)
        said = [start, end]
        if equivalent(values[0], values[-1], self.within * abs(start), self.alpha):
            return "does not hold", said
        if p < self.alpha and sign * tau > 0 and change >= self.within:
            return "holds", said
        return ("does not hold" if p < self.alpha and sign * tau < 0 and change < 0 else "cannot tell"), said

    def flat(self, places, groups):
        values = [g.values(self.d) for g in groups]
        means = [mean(v) for v in values]
        margin = self.within * abs(mean(means))
        alike, ps = True, []
        for i in range(len(values)):
            for j in range(i):
                alike = alike and equivalent(values[i], values[j], margin, self.alpha)
                apart = means[i] - means[j]
                ps.append(p_of(values[i], values[j], False, math.copysign(margin, apart)) if abs(apart) > margin and min(len(values[i]), len(values[j])) >= ENOUGH else 1.0)
        said = [min(means), max(means)]
        if alike:
            return "holds", said
        return ("does not hold" if self.significant(ps) else "cannot tell"), said

    def linear(self, places, groups):
        values = [g.values(self.d) for g in groups]
        means = [mean(v) for v in values]
        line = stats.linregress(places, means)
        rise = abs(line.slope * (places[-1] - places[0]))
        _, p = kendall([x for x, v in zip(places, values) for _ in v], [y for v in values for y in v])
        said = [means[0], means[-1]]
        if p >= self.alpha:
            return "cannot tell", said
        outcomes = []
        for x, v, m in zip(places, values, means):
            off = abs(m - line.intercept - line.slope * x)
            if len(v) < ENOUGH:
                outcomes.append("cannot tell")
                continue
            half = lambda confidence: float(stats.t.ppf((1 + confidence) / 2, len(v) - 1) * np.std(v, ddof=1) / math.sqrt(len(v)))
            outcomes.append("holds" if off + half(1 - 2 * self.alpha) <= self.within * rise else "does not hold" if off - half(1 - self.level(ALPHA / len(values))) > self.within * rise else "cannot tell")
        return together(outcomes), said

    def times(self, pairs):
        found = [self.ratio(*two(g, h, self.d), len(pairs)) for g, h in pairs]
        return together([outcome for outcome, _ in found]), found[0][1] if len(pairs) == 1 else []

    def ratio(self, x, y, paired, places):
        """Whether the ratio of the means is within the margin of the factor, at one of so many places."""
        factor = float(self.d["factor"])
        if mean(y) == 0 or min(len(x), len(y)) < 2:
            return "cannot tell", []
        r, low, high = fieller(x, y, paired, 1 - 2 * self.alpha)
        _, least, most = fieller(x, y, paired, 1 - self.level(ALPHA / places))
        said = [r, least, most] if least is not None else []
        if low is None or least is None or min(len(x), len(y)) < ENOUGH:
            return "cannot tell", said
        if factor * (1 - self.within) <= low and high <= factor * (1 + self.within):
            return "holds", said
        return ("does not hold" if most < factor * (1 - self.within) or least > factor * (1 + self.within) else "cannot tell"), said

    def ordered(self, pairs):
        above = self.d["is"] == "above"
        places, said = [], []
        for g, h in pairs:
            x, y, paired = two(g, h, self.d)
            up, down = self.beside(x, y, paired)
            places.append((up, down) if above else (down, up))
            if len(pairs) == 1:
                said = [mean(x), mean(y)]
        return self.shown(places), said

    def beside(self, x, y, paired):
        """p values of not being above, and of not being below."""
        above = self.d["is"] == "above"
        shift = self.within * abs(mean(y)) * (1 if above else -1)
        apart, up, down = mean(x) - mean(y), 1.0, 1.0
        if min(len(x), len(y)) >= ENOUGH:
            p = p_of(x, y, paired, shift)
            up, down = (p / 2, 1 - p / 2) if apart > shift else (1 - p / 2, p / 2)
            if apart == shift and min(x) == max(x) and min(y) == max(y):
                up, down = (1.0, 0.0) if above else (0.0, 1.0)
        return up, down

    def limit(self, groups):
        if not groups:
            return "not measured", []
        places, said = [], []
        for g in groups:
            limit = float(self.d["than"]) * (convert(self.d["unit"], g.unit) if self.d.get("unit") else 1)
            low, high = self.around(g)
            up, down = (0.0 if low > limit else 1.0), (0.0 if high < limit and not (low > limit) else 1.0)
            with_it, against = (up, down) if self.d["is"] == "above" else (down, up)
            if len(groups) > 1 and against == 0.0:  # one place is enough to refute it: also beyond the interval of this one's share
                low, high = self.around(g, ALPHA / len(groups))
                against = 0.0 if (high < limit if self.d["is"] == "above" else low > limit) else 1.0
            places.append((with_it, against))
            if len(groups) == 1:
                said = [mean(g.values(self.d))]
        return self.shown(places), said

    def around(self, g, alpha=ALPHA):
        """The interval of a mean whose share of the error rate is alpha; without bounds where there are too few values."""
        values, level = g.values(self.d), self.level(alpha)
        if by_wilson(g, values):
            return stats.binomtest(*g.share()).proportion_ci(1 - level, method="wilson")
        if len(values) < ENOUGH:
            return -math.inf, math.inf
        if min(values) == max(values):
            return values[0], values[0]
        if self.looks or alpha < ALPHA:  # no bootstrap has an interval of such a level
            return stats.t.interval(1 - level, len(values) - 1, mean(values), stats.sem(values))
        drawn, at = bootstrap(np.array(values), "mean")
        return np.quantile(drawn, at)

    def shown(self, places):
        """Of p values for and against, place by place."""
        if all(p < self.alpha for p, _ in places):
            return "holds"
        return "does not hold" if self.significant([q for _, q in places]) else "cannot tell"


def together(outcomes):
    if "does not hold" in outcomes:
        return "does not hold"
    return "holds" if all(o == "holds" for o in outcomes) else "cannot tell"


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
