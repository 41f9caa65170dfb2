"""How often a "95 %" interval holds the true number when there are few texts.

    python benchmarks/experiments/small_samples.py

Samples are drawn whose true mean, or share of the attainable, is known, and intervals are made of them in several ways.
Printed are the share of intervals that hold the truth, in percent, and their mean width. `docs/evaluation.md` says what
follows for tables.
"""

import argparse
from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Bounds = tuple[Floats, Floats]  # lower and upper, one for each sample
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

COUNTS = (2, 3, 5, 10, 20, 30, 100)
LOW, HIGH = 0.025, 0.975
Z = NormalDist().inv_cdf(HIGH)
SHARE = 0.6  # the true one

SAMPLES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda random, shape: random.normal(0.3, 0.2, shape), 0.3),
    "lognormal": (lambda random, shape: random.lognormal(0, 1, shape), float(np.exp(0.5))),
    "beta(1/2, 3)": (lambda random, shape: random.beta(0.5, 3, shape), 0.5 / 3.5),
    "0/1, p = .1": (lambda random, shape: (random.random(shape) < 0.1).astype(np.float64), 0.1),
    "0/1, p = .5": (lambda random, shape: (random.random(shape) < 0.5).astype(np.float64), 0.5),
}


def student(values: Floats) -> Bounds:
    """The mean ± Student's t times its standard error; of a ratio by the same formula on leave-one-out values."""
    n = values.shape[1]
    half = stats.t.ppf(HIGH, n - 1) * values.std(1, ddof=1) / np.sqrt(n)
    return values.mean(1) - half, values.mean(1) + half


def wilson(values: Floats) -> Bounds:
    """Wilson's interval of a share of ones."""
    n, p = values.shape[1], values.mean(1)
    centre, half = p + Z**2 / (2 * n), Z * np.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return (centre - half) / (1 + Z**2 / n), (centre + half) / (1 + Z**2 / n)


def jeffreys(values: Floats) -> Bounds:
    """Jeffreys's interval of a share of ones."""
    n, ones = values.shape[1], values.sum(1)
    low = np.where(ones > 0, stats.beta.ppf(LOW, ones + 0.5, n - ones + 0.5), 0)
    return low, np.where(ones < n, stats.beta.ppf(HIGH, ones + 0.5, n - ones + 0.5), 1)


def resampled(random: np.random.Generator, values: Floats, resamples: int) -> dict[str, Bounds]:
    """The intervals that come from drawing rows again: plain, expanded, BCa, and studentised."""
    found: dict[str, list[tuple[float, float]]] = {"percentile": [], "expanded": [], "BCa": [], "bootstrap-t": []}
    n = values.shape[1]
    tail = NormalDist().cdf(-float(np.sqrt(n / (n - 1)) * stats.t.ppf(HIGH, n - 1)))
    for row in values:
        drawn = row[random.integers(n, size=(resamples, n))]
        means, errors = drawn.mean(1), drawn.std(1, ddof=1) / np.sqrt(n)
        found["percentile"].append(tuple(np.quantile(means, [LOW, HIGH])))
        found["expanded"].append(tuple(np.quantile(means, [tail, 1 - tail])))
        found["BCa"].append(tuple(np.quantile(means, _corrected(row, means))))
        found["bootstrap-t"].append(_studentised(row, means, errors))
    return {name: (np.array(own)[:, 0], np.array(own)[:, 1]) for name, own in found.items()}


def _corrected(row: Floats, means: Floats) -> list[float]:
    """The percentiles that BCa takes: corrected for bias and acceleration."""
    normal, below = NormalDist(), float(np.mean(means < row.mean()) + np.mean(means == row.mean()) / 2)
    apart = row - row.mean()
    spread = float((apart**2).sum())
    if not 0 < below < 1 or spread == 0:
        return [LOW, HIGH]
    bias, speed = normal.inv_cdf(below), float((apart**3).sum()) / (6 * spread**1.5)
    places = (bias + z for z in (-Z, Z))
    return [normal.cdf(bias + place / (1 - speed * place)) for place in places]


def _studentised(row: Floats, means: Floats, errors: Floats) -> tuple[float, float]:
    known = errors > 0
    if not known.any():
        return float(row.mean()), float(row.mean())
    low, high = np.quantile((means[known] - row.mean()) / errors[known], [LOW, HIGH])
    error = row.std(ddof=1) / np.sqrt(len(row))
    return float(row.mean() - high * error), float(row.mean() - low * error)


def of_means(random: np.random.Generator, samples: int, resamples: int) -> Iterator[tuple[str, str, Bounds, float]]:
    """For each distribution and number of rows the intervals of the mean, and the true mean."""
    for name, (draw, truth) in SAMPLES.items():
        for n in COUNTS:
            values = draw(random, (samples, n))
            ways = {**resampled(random, values, resamples), "Student's t": student(values)}
            if name.startswith("0/1"):
                ways |= {"Wilson": wilson(values), "Jeffreys": jeffreys(values)}
            for way, bounds in ways.items():
                yield name, way, bounds, truth


def of_shares(random: np.random.Generator, samples: int, resamples: int) -> Iterator[tuple[str, str, Bounds, float]]:
    """The same for the share (method - chance) / (ceiling - chance), a ratio of means over the same rows."""
    for n in COUNTS:
        room = random.beta(2, 2, (samples, n))  # ceiling - chance
        reached = SHARE * room + random.normal(0, 0.15, (samples, n))  # method - chance
        ratio = reached.mean(1) / room.mean(1)
        left = (reached.sum(1, keepdims=True) - reached) / (room.sum(1, keepdims=True) - room)
        error = np.sqrt((n - 1) / n * ((left - left.mean(1, keepdims=True)) ** 2).sum(1))
        half = stats.t.ppf(HIGH, n - 1) * error
        tail = NormalDist().cdf(-float(np.sqrt(n / (n - 1)) * stats.t.ppf(HIGH, n - 1)))
        drawn = []
        for one, other in zip(reached, room, strict=True):
            places = random.integers(n, size=(resamples, n))
            ratios = one[places].mean(1) / other[places].mean(1)
            drawn.append(np.quantile(ratios, [LOW, HIGH, tail, 1 - tail]))
        ends = np.array(drawn)
        yield "share", "percentile", (ends[:, 0], ends[:, 1]), SHARE
        yield "share", "expanded", (ends[:, 2], ends[:, 3]), SHARE
        yield "share", "Student's t", (ratio - half, ratio + half), SHARE


def main() -> None:
    """Print one line for each distribution and interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000, help="of each distribution and number of rows")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    lines: dict[tuple[str, str], list[str]] = {}
    for ways in (of_means, of_shares):
        for name, way, (low, high), truth in ways(random, given.samples, given.resamples):
            holds = 100 * float(np.mean((low <= truth) & (truth <= high)))
            lines.setdefault((name, way), []).append(f"{holds:.0f} ({float(np.mean(high - low)):.2g})")
    print("| sample | interval | " + " | ".join(f"n = {n}" for n in COUNTS) + " |")
    print("|---|---" + "|---" * len(COUNTS) + "|")
    for (name, way), cells in lines.items():
        print(f"| {name} | {way} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
