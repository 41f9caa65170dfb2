"""Hiding units of an input, and what the model then says: collected, without duplicates, and run in dense batches."""

from whyformer.perturb.hides import HIDES, Baseline, HideName, HideNameOrNone, count_of, hide_named, register_hide
from whyformer.perturb.remains import Hideable, hideable, inputs_of, remains
from whyformer.perturb.runner import Counts, Outcomes, Runner, in_parts
from whyformer.perturb.search import LONGEST_SEARCH, ORDERS, Search, best_orders
from whyformer.perturb.seen import Seen

__all__ = [
    "HIDES",
    "LONGEST_SEARCH",
    "ORDERS",
    "Baseline",
    "Counts",
    "HideName",
    "HideNameOrNone",
    "Hideable",
    "Outcomes",
    "Runner",
    "Search",
    "Seen",
    "best_orders",
    "count_of",
    "hide_named",
    "hideable",
    "in_parts",
    "inputs_of",
    "register_hide",
    "remains",
]
