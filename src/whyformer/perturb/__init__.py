"""Hiding units of a text, and what the model then says: collected, without duplicates, and run in dense batches."""

from whyformer.perturb.hiding import Fillers, Hide, Positions, Row, count_of, hidden, rows_of
from whyformer.perturb.outcomes import Counts, Outcomes, fits_in_memory, probabilities
from whyformer.perturb.search import LONGEST_SEARCH, Search, best_orders

__all__ = [
    "LONGEST_SEARCH",
    "Counts",
    "Fillers",
    "Hide",
    "Outcomes",
    "Positions",
    "Row",
    "Search",
    "best_orders",
    "count_of",
    "fits_in_memory",
    "hidden",
    "probabilities",
    "rows_of",
]
