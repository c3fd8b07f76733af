#!/usr/bin/env python3
"""Writes reference.json: numbers of SciPy and statsmodels that the tests of package stats compare with.

Made with SciPy 1.17.1, statsmodels 0.15.0:  python3 reference.py > reference.json
"""
import itertools
import json

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

rng = np.random.default_rng(20240607)


def rounded(x, digits):
    return [float(v) for v in np.round(x, digits)]


SAMPLES = {
    "normal, equal": (rounded(rng.normal(10, 1, 20), 6), rounded(rng.normal(10, 1, 20), 6)),
    "normal, shifted, unequal spread": (rounded(rng.normal(10, 1, 12), 6), rounded(rng.normal(12, 4, 30), 6)),
    "skewed": (rounded(rng.lognormal(0, 1, 40), 6), rounded(rng.lognormal(0.5, 1, 40), 6)),
    "large": (rounded(rng.normal(5, 1, 80), 6), rounded(rng.normal(5.3, 1, 90), 6)),
    "large, tied": (rounded(rng.normal(5, 1, 60), 1), rounded(rng.normal(5.3, 1, 70), 1)),
    "small, tied": ([1.0, 2.0, 2.0, 3.0, 5.0], [2.0, 4.0, 5.0, 5.0, 6.0, 7.0]),
    "small, tied, the other way": ([4.0, 4.0, 5.0, 9.0, 9.0], [1.0, 1.0, 1.0, 4.0, 5.0, 9.0]),
    "tiny variance": ([1e-9, 1.1e-9, 0.9e-9, 1.05e-9, 1e-9], [2e-9, 2.1e-9, 1.9e-9, 2.2e-9, 2e-9]),
    "far apart": (rounded(rng.normal(0, 1, 10), 6), rounded(rng.normal(50, 1, 10), 6)),
}


def mann_whitney(a, b):
    """Twice the smaller tail of all permutations for small tied samples; else what SciPy computes."""
    u = stats.mannwhitneyu(a, b, method="asymptotic").statistic
    if len(set(a + b)) == len(a + b):
        method = "exact" if max(len(a), len(b)) <= 50 else "asymptotic"
        return u, stats.mannwhitneyu(a, b, method=method).pvalue
    if len(a) + len(b) > 15:
        return u, stats.mannwhitneyu(a, b, method="asymptotic").pvalue
    pooled, below, above, count = a + b, 0, 0, 0
    ranks = stats.rankdata(pooled)
    for chosen in itertools.combinations(range(len(pooled)), len(a)):
        other = ranks[list(chosen)].sum() - len(a) * (len(a) + 1) / 2
        below += other <= u + 1e-9
        above += other >= u - 1e-9
        count += 1
    return u, min(1.0, 2 * min(below, above) / count)


def pair(name, a, b):
    na, nb, va, vb = len(a), len(b), np.var(a, ddof=1), np.var(b, ddof=1)
    welch = stats.ttest_ind(a, b, equal_var=False)
    u, p = mann_whitney(a, b)
    margin = float(f"{0.8 * np.sqrt((va + vb) / 2):.3g}")
    compare = CompareMeans(DescrStatsW(a), DescrStatsW(b))
    p_tost, (lower, upper) = compare.ttost_ind(-margin, margin, usevar="unequal")
    interval = compare.tconfint_diff(0.10, usevar="unequal")
    freedom = na + nb - 2
    pooled = np.sqrt(((na - 1) * va + (nb - 1) * vb) / freedom)
    from scipy.special import gammaln
    g = np.exp(gammaln(freedom / 2) - gammaln((freedom - 1) / 2)) / np.sqrt(freedom / 2) * (np.mean(a) - np.mean(b)) / pooled
    delta = np.mean([np.sign(x - y) for x in a for y in b])
    out = dict(name=name, a=a, b=b, mean=np.mean(a), median=np.median(a), variance=va, deviation=np.sqrt(va),
               quantiles={str(q): np.quantile(a, q, method="median_unbiased") for q in (0, 0.05, 0.25, 0.75, 0.95, 0.99, 1)},
               t=welch.statistic, freedom=welch.df, p=welch.pvalue, u=u, p_u=p, hedges_g=g, cliffs_delta=delta,
               margin=margin, tost_p=p_tost, tost_lower=lower[1], tost_upper=upper[1], interval=interval)
    if na == nb:
        t = stats.ttest_rel(a, b)
        d = DescrStatsW(np.array(a) - np.array(b))
        out.update(paired_t=t.statistic, paired_p=t.pvalue, paired_tost=d.ttost_mean(-margin, margin)[0])
    return {k: (float(v) if isinstance(v, np.floating) else v) for k, v in out.items()}


def signed_rank(name, a, b):
    """Twice the smaller tail of all signs for tied pairs, or with pairs that do not differ, of up to 15; else what SciPy computes."""
    d = [round(x - y, 9) for x, y in zip(a, b)]
    rest = [x for x in d if x != 0]
    ranks = stats.rankdata(np.abs(rest))
    above, below = float(ranks[np.array(rest) > 0].sum()), float(ranks[np.array(rest) < 0].sum())
    if len(set(np.abs(rest))) == len(rest) == len(d) and len(d) <= 50:
        p = stats.wilcoxon(d, method="exact").pvalue
    elif len(rest) <= 15:
        sums = [ranks[list(signs)].sum() for signs in itertools.product([False, True], repeat=len(rest))]
        p = min(1.0, 2 * float(np.mean(np.array(sums) <= min(above, below) + 1e-9)))
    else:
        p = stats.wilcoxon(d, method="asymptotic", correction=True).pvalue
    return dict(name=name, a=a, b=b, w=above, p=float(p), biserial=(above - below) / (above + below))


def bootstrap(name, a):
    def run(statistic, method):
        r = stats.bootstrap((np.array(a),), statistic, n_resamples=200_000, batch=10_000, method=method, rng=np.random.default_rng(1))
        return [float(r.confidence_interval.low), float(r.confidence_interval.high)]

    def median(x, axis):
        return np.quantile(x, 0.5, axis=axis, method="median_unbiased")
    return dict(name=name, sample=a, mean_bca=run(np.mean, "BCa"), median_percentile=run(median, "percentile"))


RATIOS = [(0, 20, 0.95), (1, 29, 0.95), (15, 148, 0.95), (81, 263, 0.95), (29, 29, 0.99), (3, 100_000, 0.999)]
TWO_RATIOS = [(56, 70, 48, 80, 0.95), (9, 10, 3, 10, 0.95), (0, 10, 0, 20, 0.95), (5, 1000, 7, 900, 0.90)]
SIGNED = dict(SAMPLES)
RNG = np.random.default_rng(1945)  # another, so that the samples above stay what they are
SIGNED["five pairs"] = ([1.0, 2.0, 3.0, 4.0, 5.0], [0.9, 1.7, 2.4, 2.8, 3.1])
SIGNED["tied pairs, some equal"] = ([5.0, 7.0, 6.0, 6.0, 9.0, 4.0, 8.0, 5.0, 6.0, 7.0], [5.0, 6.0, 5.0, 7.0, 7.0, 4.0, 6.0, 6.0, 5.0, 5.0])
SIGNED["fifty pairs"] = (rounded(RNG.normal(10, 1, 50), 6), rounded(RNG.normal(10.4, 1, 50), 6))
SIGNED["eighty pairs, tied"] = (rounded(RNG.normal(10, 1, 80), 1), rounded(RNG.normal(10.3, 1, 80), 1))
SIGNED["two hundred pairs"] = (rounded(RNG.normal(10, 1, 200), 6), rounded(RNG.normal(10.2, 1, 200), 6))
PS = [[0.01, 0.04, 0.03, 0.005], [0.5, 0.5, 0.02], [0.001], [0.04, 0.04, 0.04, 0.9, 1.0]]

print(json.dumps(dict(
    pairs=[pair(name, a, b) for name, (a, b) in SAMPLES.items()],
    bootstraps=[bootstrap(name, SAMPLES[name][0]) for name in ("normal, equal", "skewed", "normal, shifted, unequal spread")],
    wilcoxon=[signed_rank(name, a, b) for name, (a, b) in SIGNED.items() if len(a) == len(b)],
    wilson=[dict(count=k, of=n, confidence=c, interval=[float(v) for v in proportion_confint(k, n, 1 - c, "wilson")]) for k, n, c in RATIOS],
    newcombe=[dict(count_a=a, of_a=b, count_b=c, of_b=d, confidence=e,
                   interval=[float(v) for v in confint_proportions_2indep(a, b, c, d, method="newcomb", compare="diff", alpha=1 - e)])
              for a, b, c, d, e in TWO_RATIOS],
    holm=[dict(p=p, adjusted=[float(v) for v in multipletests(p, method="holm")[1]]) for p in PS],
), indent=1))
