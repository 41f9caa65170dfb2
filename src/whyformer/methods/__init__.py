"""One decorated function per method, a file per family. Importing this package registers them all."""

from whyformer.methods import attcat as attcat
from whyformer.methods import attention as attention
from whyformer.methods import center_prior as center_prior
from whyformer.methods import decomposition as decomposition
from whyformer.methods import gradient as gradient
from whyformer.methods import logit_lens as logit_lens
from whyformer.methods import lrp as lrp
from whyformer.methods import mask_lrp as mask_lrp
from whyformer.methods import paths as paths
from whyformer.methods import sampling as sampling
from whyformer.methods import stepwise as stepwise
