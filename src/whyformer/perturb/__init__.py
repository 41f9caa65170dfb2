"""Hiding units of an input, and what the model then says: collected, without duplicates, and run in dense batches."""

from whyformer.inputs.hiding import HIDES as HIDES
from whyformer.inputs.hiding import HideName as HideName
from whyformer.inputs.hiding import HideNameOrNone as HideNameOrNone
from whyformer.inputs.hiding import count_of as count_of
from whyformer.inputs.hiding import hide_named as hide_named
from whyformer.inputs.hiding import register_hide as register_hide
from whyformer.perturb.engine import Hidden as Hidden
from whyformer.perturb.engine import Hideable as Hideable
from whyformer.perturb.engine import Outcome as Outcome
from whyformer.perturb.engine import Outcomes as Outcomes
from whyformer.perturb.engine import hideable as hideable
from whyformer.perturb.engine import outcomes_of as outcomes_of
from whyformer.perturb.engine import outcomes_without as outcomes_without
from whyformer.perturb.engine import remains as remains
from whyformer.perturb.hiding_steps import Seen as Seen
from whyformer.perturb.out_of_memory import in_halves as in_halves
from whyformer.perturb.search import LONGEST_SEARCH as LONGEST_SEARCH
from whyformer.perturb.search import ORDERS as ORDERS
from whyformer.perturb.search import Search as Search
from whyformer.perturb.search import best_orders as best_orders
