"""One instrumented run of an unmodified model."""

from whyformer.recorder.lrp.rule_sets import BOOKS as BOOKS
from whyformer.recorder.lrp.rule_sets import Book as Book
from whyformer.recorder.lrp.rule_sets import BySite as BySite
from whyformer.recorder.needs import GRADIENT as GRADIENT
from whyformer.recorder.needs import MAPS as MAPS
from whyformer.recorder.needs import RELEVANCE as RELEVANCE
from whyformer.recorder.needs import Needs as Needs
from whyformer.recorder.needs import with_book as with_book
from whyformer.recorder.recording import Edit as Edit
from whyformer.recorder.recording import record as record
from whyformer.recorder.trace import Layers as Layers
from whyformer.recorder.trace import Trace as Trace
from whyformer.recorder.trace import differentiating as differentiating
