"""Composing: one image of two, so that a method can be asked which half speaks for which class."""

import numpy as np
from PIL import Image


def side_by_side(left: Image.Image, right: Image.Image) -> Image.Image:
    """Two images squeezed to half their width and set side by side, in the size of the first.

    A model whose processor squashes images to a square so sees each in half of its patches.
    """
    width, height = left.size
    whole = Image.new("RGB", (width - width % 2, height))
    for place, image in enumerate((left, right)):
        squeezed = image.convert("RGB").resize((width // 2, height), Image.Resampling.BILINEAR)
        whole.paste(squeezed, (place * (width // 2), 0))
    return whole


def pairs_of(labels: list[int], count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Pairs of examples with different labels, drawn at random and each pair once."""
    numbers = np.random.default_rng(seed)
    pairs: dict[tuple[int, int], None] = {}
    most = sum(a != b for n, a in enumerate(labels) for b in labels[:n])
    while len(pairs) < min(count, most):
        first, second = (int(number) for number in numbers.choice(len(labels), 2, replace=False))
        if labels[first] != labels[second] and (second, first) not in pairs:
            pairs[first, second] = None
    return list(pairs)
