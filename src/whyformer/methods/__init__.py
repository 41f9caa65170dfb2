"""One decorated function per method, a file per family. Importing this package registers them all."""

from whyformer.methods import (
    attcat,
    attention,
    decoded,
    decomposition,
    gradient,
    mask_lrp,
    paths,
    perturbation,
    relevance,
    stepwise,
)

__all__ = [
    "attcat",
    "attention",
    "decoded",
    "decomposition",
    "gradient",
    "mask_lrp",
    "paths",
    "perturbation",
    "relevance",
    "stepwise",
]
