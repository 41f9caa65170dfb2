"""Checked words: how often the effect of deleting a word has the sign of the effect of masking it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DELETED, MASKED = "sign_agreement", "sign_agreement(hide=mask)"
NEUTRAL = 0.1  # log-odds: a word with a smaller effect has no color
RESAMPLES = 1000
MEASURES = ("checked_agreement", "marked_words", "neutral_words")

WordCounts = NDArray[np.float64]


class Share(NamedTuple):
    """A share over all words, with a 95 % interval from resampled texts, and the number of texts."""

    mean: float
    low: float
    high: float
    n: int


def checked_shares(records: Iterable[Any]) -> dict[tuple[str, str], Share]:
    """The shares of each method and measure, from the records of a journal.

    `checked_agreement`: words whose effect by deletion has the sign of their effect by masking / words with both
    effects. `marked_words`: words whose score has another sign than their effect by deletion / all words that were
    looked at. `neutral_words`: words that hardly matter alone / all words that were looked at.
    """
    details: defaultdict[str, dict[str, dict[int, Any]]] = defaultdict(lambda: {DELETED: {}, MASKED: {}})
    for record in records:
        if record.metric in (DELETED, MASKED) and record.detail is not None:
            details[record.method][record.metric][record.row] = record.detail
    found = {}
    for method, both in details.items():
        texts = [_counts(both[DELETED][row], both[MASKED][row]) for row in sorted(both[DELETED].keys() & both[MASKED])]
        for number, measure in enumerate(MEASURES if texts else ()):
            found[method, measure] = _share(np.array([text[number] for text in texts], dtype=np.float64))
    return found


def _counts(deleted: Mapping[str, Any], masked: Mapping[str, Any]) -> Sequence[tuple[int, int]]:
    """For each measure the words of a text that count, and those they are a share of."""
    signs, by_deletion, by_masking = (np.array(x) for x in (deleted["signs"], deleted["effects"], masked["effects"]))
    matters = np.abs(by_deletion) >= NEUTRAL
    both = matters & (np.abs(by_masking) > NEUTRAL)
    agree = both & (by_deletion * by_masking > 0)
    wrong = matters & (signs * by_deletion <= 0)
    words = len(signs)
    return (int(agree.sum()), int(both.sum())), (int(wrong.sum()), words), (int((~matters).sum()), words)


def _share(counts: WordCounts) -> Share:
    """The share over all texts; `counts` is [texts, 2]."""
    n = len(counts)
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    with np.errstate(invalid="ignore"):
        mean = counts[:, 0].sum() / counts[:, 1].sum()
        drawn = (draws @ counts[:, 0]) / (draws @ counts[:, 1])
    low, high = np.nanquantile(drawn, [0.025, 0.975]) if n > 1 and np.isfinite(drawn).any() else (np.nan, np.nan)
    return Share(float(mean), float(low), float(high), n)
