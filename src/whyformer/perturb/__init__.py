"""Hiding units of a text, and what the model then says: collected, without duplicates, and run in dense batches."""

from whyformer.perturb.hiding import Fillers, Hide, Positions, Row, count_of, hidden, rows_of
from whyformer.perturb.outcomes import Counts, Outcomes, fits_in_memory, probabilities, shares_of
from whyformer.perturb.remains import Hideable, hideable, remains
from whyformer.perturb.search import LONGEST_SEARCH, ORDERS, Search, best_orders
from whyformer.perturb.seen import Seen

__all__ = [
    "LONGEST_SEARCH",
    "ORDERS",
    "Counts",
    "Fillers",
    "Hide",
    "Hideable",
    "Outcomes",
    "Positions",
    "Row",
    "Search",
    "Seen",
    "best_orders",
    "count_of",
    "fits_in_memory",
    "hidden",
    "hideable",
    "probabilities",
    "remains",
    "rows_of",
    "shares_of",
]
