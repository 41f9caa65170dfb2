"""One decorated function per metric, a file per family. Importing this package registers them all."""

from whyformer.metrics import confidence as confidence
from whyformer.metrics import faithfulness as faithfulness
from whyformer.metrics import images as images
from whyformer.metrics import plausibility as plausibility
from whyformer.metrics import sign_agreement as sign_agreement
from whyformer.metrics.case import Annotation as Annotation
from whyformer.metrics.case import Case as Case
from whyformer.metrics.case import RationaleWords as RationaleWords
from whyformer.metrics.case import answer_tokens as answer_tokens
from whyformer.metrics.case import measure as measure
