"""The level of the last of several looks, as docs/report.md says: Lan and DeMets' spending function that is like O'Brien and Fleming's."""

import math
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

FARTHEST, LEAST = 8.0, 1e-9  # of a normal statistic; of a level


def spent(alpha, share):
    """How much of alpha is used when a share of all values is there."""
    return 2 * stats.norm.sf(stats.norm.ppf(1 - alpha / 2) / math.sqrt(share))


def last_boundary(shares, alpha):
    """From where on a normal statistic rejects at the last look: the probability of a first rejection at each look is what may be spent there."""
    places, weighed, before, used, z = np.zeros(1), np.ones(1), 0.0, 0.0, FARTHEST
    for share in shares:
        root = math.sqrt(share - before)
        rejected = lambda z: float(weighed @ stats.norm.sf((z * math.sqrt(share) - places) / root))
        may = spent(alpha, share) - used
        z = FARTHEST if rejected(FARTHEST) >= may else optimize.brentq(lambda z: rejected(z) - may, -FARTHEST, FARTHEST, xtol=1e-12)
        grid = np.linspace(-FARTHEST * math.sqrt(share), z * math.sqrt(share), 2401)
        density = np.array([weighed @ stats.norm.pdf((y - places) / root) / root for y in grid])
        places, weighed, before, used = grid, density * simpson(grid), share, spent(alpha, share)
    return z


def simpson(grid):
    """The weights of Simpson's rule on an odd number of equidistant places."""
    weights = np.ones(len(grid))
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return weights * (grid[1] - grid[0]) / 3


@lru_cache(maxsize=None)
def level(shares, alpha):
    """The level of tests at the last look, the lower of those of one side and of two, so that alpha is that over all looks."""
    one = stats.norm.sf(last_boundary(shares, alpha))
    two = 2 * stats.norm.sf(last_boundary(shares, alpha / 2))
    return max(LEAST, min(one, two))


def shares(result):
    """At which shares of the most repetitions a result was looked at; None: once, at the end."""
    until = result.header["experiment"].get("until")
    if not until:
        return None
    looks, last = until["looks"], max(s["repetition"] for s in result.samples + result.failed)
    at = [n for n in looks if n <= last]
    if last < looks[-1] and last not in at:
        at.append(max(1, last))
    return tuple(n / looks[-1] for n in at)
