"""What `method="auto"` means: the winner recorded for a model, or else the method that wins in general."""

from whyformer.choices import recorded
from whyformer.load import Subject
from whyformer.registry import Method
from whyformer.specs import Spec, Written, method_specs, names_of

AUTO = "attn_lrp"  # of the one-pass methods in docs/results.md the one that is never far behind the best


def auto_method(subject: Subject | None = None) -> Spec[Method]:
    """What `auto` means: the winner recorded for this model, or else the method that wins in general."""
    found = None if subject is None else recorded(subject)
    return method_specs([AUTO])[0] if found is None else found.spec


def methods_for(subject: Subject | None, written: Written) -> tuple[Spec[Method], ...]:
    """The methods named, as `method_specs` gives them; `auto` is what it means for this model."""
    if written == "all":
        return method_specs(written)
    names = names_of(written)
    return method_specs([auto_method(subject).label if name == "auto" else name for name in names])
