"""The default method `auto` on each kind of model, and the files that a bundled model brings for its methods."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

from torch import nn

from whyformer.errors import BadOption, WhyformerError
from whyformer.images import is_stacked, is_stacked_for
from whyformer.inputs.batch import Batch, collate, encode
from whyformer.methods.method import (
    BESIDE_AUTO,
    EVERY,
    SHORT,
    USUAL,
    MethodSpec,
    means_several,
    method_named,
    method_specs,
)
from whyformer.models.auto_classes import task_name
from whyformer.models.cache import known
from whyformer.models.load import BUNDLED, Subject, bundled_models
from whyformer.recorder import Layers, record
from whyformer.registry.specs import Written, distinct, names_of
from whyformer.storage.files import read_json
from whyformer.tasks.next_token import NextToken

BLANK = "a"  # a text that only asks what a model is made of
STACKED = "texts go through one stack of layers"


def reads_in_one_stack(subject: Subject) -> bool:
    """Return True if a model of texts has one stack of layers, as a BERT and unlike an encoder with a decoder.

    A model that cannot be recorded counts as one without; its explanation reports what is wrong.
    """

    def find() -> bool:
        return _has_one_stack(subject.model, collate(subject, [encode(subject, BLANK, answers=False)]))

    try:
        return known(subject.model).once(STACKED, find)
    except WhyformerError:
        return False


def reads_in_one_stack_for(model: nn.Module, batch: Batch) -> bool:
    """Return the same for ready tensors, after a run on the first of them."""
    return known(model).once(STACKED, lambda: _has_one_stack(model, batch.rows([0])))


def _has_one_stack(model: nn.Module, batch: Batch) -> bool:
    return isinstance(record(model, batch.tensors, relevance=False).layers, Layers)


def shipped_file(model: nn.Module, name: str) -> Path | None:
    """The file of that name that a bundled model ships with, or None."""
    folder = Path(getattr(getattr(model, "config", None), "_name_or_path", ""))
    is_bundled = folder.parent == BUNDLED and folder.name in bundled_models()
    return folder / name if is_bundled and (folder / name).exists() else None


def shipped_layer(model: nn.Module) -> int | None:
    """The layer that a bundled model ships with, or None."""
    file = shipped_file(model, "layer.json")
    return None if file is None else int(read_json(file)["layer"])


def best_layer(model: nn.Module) -> int:
    """The layer that a bundled model ships with. Any other model needs a number."""
    layer = shipped_layer(model)
    if layer is None:
        raise BadOption(
            "layer='best' is the layer that a bundled model ships with, and this model is not bundled: give a number. "
            "`whyformer recommend --layers --data FILE` finds one on your own texts"
        )
    return layer


Effort = Literal["fast", "balanced", "best"]

AUTO = "layer_lrp"  # of the one-pass methods in docs/results.md the one that is never far behind the best
AUTO_OF_NEXT_TOKENS = "layer_lrp(book=attn)"  # see docs/layered.md
AUTO_OF_IMAGES = "full_grad(book=attn)"  # of those in docs/results.md
WITHOUT_A_STACK = "attn_lrp"  # all of the above are for models with one stack of layers
AUTO_SENTENCE = (
    f"auto, the default, is {AUTO} for texts, {AUTO_OF_NEXT_TOKENS} for next tokens, {AUTO_OF_IMAGES} for images, "
    f"and {WITHOUT_A_STACK} for models without a single stack of layers"
)
EFFORT: Effort = "fast"  # by default
STEPS: dict[Effort, int] = {"balanced": 3, "best": 10}  # of `stepwise`; "fast" is one pass


def usual_method(subject: Subject | None) -> str:
    """The method that wins in general: of texts, or of images; another if the model does not have one stack of layers.

    A model that compares images with texts has two.
    """
    if subject is None:
        return AUTO
    if subject.takes_images:
        return AUTO_OF_IMAGES if subject.task == "classes" and is_stacked(subject) else WITHOUT_A_STACK
    return _of_texts(subject.model) if reads_in_one_stack(subject) else WITHOUT_A_STACK


def _of_texts(model: nn.Module) -> str:
    """The method for a model of texts with one stack of layers."""
    return AUTO_OF_NEXT_TOKENS if task_name(model) == NextToken.name else AUTO


def usual_method_for(model: nn.Module, batch: Batch) -> str:
    """The same for ready tensors."""
    if not batch.is_images:
        return _of_texts(model) if reads_in_one_stack_for(model, batch) else WITHOUT_A_STACK
    pixels = batch.tensors["pixel_values"]
    return AUTO_OF_IMAGES if pixels.dim() == 4 and is_stacked_for(model, pixels) else WITHOUT_A_STACK


def usual_in_steps(usual: str) -> str:
    """What explains the steps of `stepwise` on a model with this usual method: of images, none was found to be best."""
    return usual if usual in (AUTO, AUTO_OF_NEXT_TOKENS) else WITHOUT_A_STACK


def auto_method(subject: Subject | None = None, effort: str | None = None, *, usual: str | None = None) -> MethodSpec:
    """The method that `auto` is a name for on this model: the `usual` one."""
    way = effort_named(EFFORT if effort is None else effort)
    return with_effort(method_specs([usual or usual_method(subject)])[0], way)


def with_effort(spec: MethodSpec, effort: Effort) -> MethodSpec:
    """A method as it is, with the effort `"fast"`; with `"balanced"` and `"best"` through the steps of `stepwise`."""
    if effort == "fast":
        return spec
    steps = MethodSpec(method_named("stepwise"), {"of": spec.label, "steps": STEPS[effort]})
    try:
        _ = steps.made_of
    except BadOption as error:
        raise BadOption(f"effort={effort!r} takes {spec.label} step by step, and that cannot be: {error}") from error
    return steps


def effort_named(effort: str) -> Effort:
    """The effort of that name."""
    if effort not in get_args(Effort):
        raise BadOption(f"effort is one of {', '.join(get_args(Effort))}; found {effort!r}")
    return cast(Effort, effort)


def methods_for(
    subject: Subject | None,
    written: Written,
    effort: str | None = None,
    *,
    usual: str | None = None,
) -> tuple[MethodSpec, ...]:
    """The methods named; `auto`, with this effort, and `layer=best` are what they mean for this model.

    `usual` is as for `auto_method`.
    """
    names = names_of(written)
    names = ["auto", *BESIDE_AUTO] if names == [SHORT] else names
    if effort is not None and "auto" not in names:
        raise BadOption(
            f"effort={effort_named(effort)!r} is for `auto`, which is not among the methods "
            f"({', '.join(names)}): name auto, or leave effort out; any method is taken step by step as "
            "stepwise(of=NAME, steps=10)"
        )
    if means_several(names):
        specs = _fitting(subject, method_specs(names))
    else:
        specs = method_specs(
            [auto_method(subject, effort, usual=usual).label if name == "auto" else name for name in names]
        )
        specs = _fitting(subject, specs, names) if set(EVERY) & set(names) else specs
    if subject is None:
        return specs
    return distinct([with_layer(with_steps(spec, subject), subject.model) for spec in specs])


def _fitting(
    subject: Subject | None, specs: tuple[MethodSpec, ...], named: Sequence[str] = ()
) -> tuple[MethodSpec, ...]:
    """The methods that go with a model that reads texts, or images; and those that were named."""
    if subject is not None and subject.takes_images:
        return specs
    return tuple(spec for spec in specs if not spec.of.images_only or spec.label in named)


def with_steps(spec: MethodSpec, subject: Subject) -> MethodSpec:
    """With the name of the method that explains its steps, where none was named, so that a journal's key knows it."""
    return spec.made_of_label(usual_in_steps(usual_method(subject))) if spec.is_made_of_usual else spec


def with_layer(spec: MethodSpec, model: nn.Module) -> MethodSpec:
    """With the number of the layer that `layer=best` is for this model, so that a journal's key knows it."""
    inner = spec.made_of
    if inner is not None and (of := with_layer(inner, model).label) != inner.label:
        return spec.made_of_label(of)
    layer = spec.options.get("layer")
    if not isinstance(layer, str) or layer != "best":
        return spec
    return MethodSpec(spec.of, {**spec.options, "layer": best_layer(model)})


def with_options(spec: MethodSpec, model: nn.Module, options: Mapping[str, Any]) -> MethodSpec:
    """A method with more options, checked; `layer="best"` is a number from here on, and `auto` stays what it means."""
    more = {name: value for name, value in spec.of.checked(options).items() if (name, value) != (spec.of_option, USUAL)}
    return with_layer(MethodSpec(spec.of, {**spec.options, **more}), model)
