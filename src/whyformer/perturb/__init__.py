"""Hiding units of an input, and what the model then says: collected, without duplicates, and run in dense batches."""

from whyformer.perturb.effects import Hidden as Hidden
from whyformer.perturb.effects import Outcome as Outcome
from whyformer.perturb.effects import outcomes_of as outcomes_of
from whyformer.perturb.effects import outcomes_without as outcomes_without
from whyformer.perturb.hides import HIDES as HIDES
from whyformer.perturb.hides import HideName as HideName
from whyformer.perturb.hides import HideNameOrNone as HideNameOrNone
from whyformer.perturb.hides import count_of as count_of
from whyformer.perturb.hides import hide_named as hide_named
from whyformer.perturb.hides import register_hide as register_hide
from whyformer.perturb.out_of_memory import in_halves as in_halves
from whyformer.perturb.remains import Hideable as Hideable
from whyformer.perturb.remains import hideable as hideable
from whyformer.perturb.remains import remains as remains
from whyformer.perturb.runner import Outcomes as Outcomes
from whyformer.perturb.search import LONGEST_SEARCH as LONGEST_SEARCH
from whyformer.perturb.search import ORDERS as ORDERS
from whyformer.perturb.search import Search as Search
from whyformer.perturb.search import best_orders as best_orders
from whyformer.perturb.seen import Seen as Seen
