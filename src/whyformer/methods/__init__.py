"""One decorated function per method, a file per family. Importing this package registers them all."""

from whyformer.methods import attcat, attention, decomposition, gradient, mask_lrp, perturbation, relevance

__all__ = ["attcat", "attention", "decomposition", "gradient", "mask_lrp", "perturbation", "relevance"]
