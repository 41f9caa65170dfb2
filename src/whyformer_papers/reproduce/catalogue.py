"""The catalogue: every table and figure by name, and what can be run of each now."""

from types import MappingProxyType

import whyformer.methods
import whyformer.metrics  # noqa: F401  (registers the metrics; the line above the methods)
from whyformer.errors import BadOption, nearest
from whyformer_papers.reproduce import attcat, decoded, mask_lrp, transformer_attribution
from whyformer_papers.reproduce.recipe import Reproduction

_PAPERS = (attcat, transformer_attribution, mask_lrp, decoded)
_BY_NAME: MappingProxyType[str, Reproduction] = MappingProxyType(
    {recipe.name: recipe for paper in _PAPERS for recipe in paper.REPRODUCTIONS}
)


def reproductions() -> MappingProxyType[str, Reproduction]:
    """Every table and figure by name, such as `attcat-table-1`."""
    return _BY_NAME


def reproduction_named(name: str) -> Reproduction:
    """The table or figure of that name, or an error with the nearest one."""
    if name not in _BY_NAME:
        raise BadOption(f"there is no table or figure {name!r}; {nearest(name, _BY_NAME)}")
    return _BY_NAME[name]


def listing() -> list[tuple[str, str, str]]:
    """The name of every table and figure, its title with the paper, and its state: ready, or what it waits for."""
    return [(recipe.name, f"{recipe.paper}: {recipe.title}", recipe.state) for recipe in _BY_NAME.values()]
