"""Methods with their options, as they are written: `attcat(states=inputs)`, `all`, `fast`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whyformer.errors import BadOption
from whyformer.methods.registry import METHODS, Method, Scores, list_methods
from whyformer.prediction import Prediction
from whyformer.recorder import Needs
from whyformer.registry.options import MethodName
from whyformer.registry.specs import Spec, Written, distinct, names_of, read_spec
from whyformer.tasks.task import Explains

FAST = "fast"  # every method that runs the model once, forward and backward
SHORT = "short"  # five methods, the default where methods are compared
EVERY = ("all", FAST, SHORT)
BESIDE_AUTO = ("attn_lrp", "transformer_attribution", "attcat", "random")  # the other methods of `short`
USUAL = "auto"  # in place of a method that another one is made of: the one that wins in general on a model


@dataclass(frozen=True)
class MethodSpec(Spec[Method]):
    """A method with its options."""

    def __call__(self, prediction: Prediction) -> Scores:
        """The scores with these options."""
        return self.of(prediction, **self.options)

    @property
    def facts(self) -> dict[str, Any]:
        """What determines a number: the facts of the method, and of the method that it is made of."""
        facts = super().facts | ({} if self.quantity == "logit" else {"quantity": self.quantity})
        return facts if self.made_of is None else facts | {"made_of": self.made_of.facts}

    @property
    def of_option(self) -> str | None:
        """The name of the option that says which method this one is made of, if it is made of one."""
        return next((name for name, option in self.of.options.items() if MethodName in option.kinds), None)

    @property
    def made_of(self) -> "MethodSpec | None":
        """The method that this one is made of: what an option of type `MethodName` names, if that is one already."""
        if self.of_option is None or self.is_made_of_usual:
            return None
        option = self.of.options[self.of_option]
        spec = method_specs([self.options.get(option.name, option.default)])[0]
        if spec.of.name == self.of.name:
            raise BadOption(
                f"{self.of.name} cannot be made of itself: give {option.name}= a method that explains in one pass"
            )
        return spec

    @property
    def is_made_of_usual(self) -> bool:
        """Whether it is made of the method that wins in general: which that is, depends on the model."""
        name = self.of_option
        return name is not None and self.options.get(name, self.of.options[name].default) == USUAL

    def made_of_label(self, label: str) -> "MethodSpec":
        """The same method, made of the one that is written as `label`."""
        return self if self.of_option is None else MethodSpec(self.of, {**self.options, self.of_option: label})

    @property
    def needs(self) -> Needs:
        """What a run has to record for it: of a method made of another, that is what the other needs."""
        return self.of.needs_for(self.options) if self.made_of is None else self.made_of.needs

    @property
    def quantity(self) -> Explains:
        """The quantity it explains by default: that of the method that it is made of."""
        return self.of.quantity if self.made_of is None else self.made_of.quantity

    @property
    def signed(self) -> bool:
        """Whether its scores may have signs: of a method that has none otherwise, those that report a drop do."""
        return self.of.signed or self.options.get("report") == "drop"

    @property
    def class_specific(self) -> bool:
        """Whether its scores depend on the class: not if those of the method that it is made of do not."""
        return self.of.class_specific and (self.made_of is None or self.made_of.class_specific)


def means_several(names: Sequence[str]) -> bool:
    """True for the one name of a group of methods: `all`, `fast` or `short`."""
    return len(names) == 1 and names[0] in EVERY


def method_specs(written: Written) -> tuple[MethodSpec, ...]:
    """The methods named, with options in brackets; `all`, `fast` for those of one pass, `short` for five."""
    meant = [name for part in names_of(written) for name in _meant(part)]
    return distinct([_spec(*read_spec(name, METHODS)) for name in meant])


def _meant(word: str) -> list[str]:
    """The methods that a word for several stands for, or the one that is named."""
    if word not in EVERY:
        return [word]
    if word == SHORT:
        return ["layer_lrp", *BESIDE_AUTO]
    return [name for name, method in list_methods().items() if word == "all" or method.passes == "one"]


def _spec(method: Method, options: Mapping[str, Any]) -> MethodSpec:
    spec = MethodSpec(method, options)
    made_of = spec.made_of  # raises if it cannot be made of that
    return spec if made_of is None or spec.of_option not in options else spec.made_of_label(made_of.label)
