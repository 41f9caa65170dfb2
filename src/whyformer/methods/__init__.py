"""One decorated function per method, a file per family. Importing this package registers them all."""

from whyformer.methods import attcat as attcat
from whyformer.methods import attention as attention
from whyformer.methods import centre as centre
from whyformer.methods import decoded as decoded
from whyformer.methods import decomposition as decomposition
from whyformer.methods import full_grad as full_grad
from whyformer.methods import gradient as gradient
from whyformer.methods import layered as layered
from whyformer.methods import mask_lrp as mask_lrp
from whyformer.methods import paths as paths
from whyformer.methods import perturbation as perturbation
from whyformer.methods import relevance as relevance
from whyformer.methods import stepwise as stepwise
