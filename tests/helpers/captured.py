"""What is captured beside what is not: the same scores for the inputs it was captured with, and for others."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

import whyformer
from tests.helpers import zoo
from whyformer.errors import WhyformerError
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import method_specs
from whyformer.prediction import Prediction
from whyformer.recorder.capture import captures
from whyformer.recorder.capture.captures import SIGHTS, capturing

EVERY_ARCHITECTURE = zoo.each(zoo.SEQUENCE, zoo.CAUSAL, zoo.IMAGE, but=lambda _, name: name in zoo.SLOW)
# Architectures that none of these methods explains, each refused with its reason.
WITHOUT_A_METHOD = (
    *("PerceiverForImageClassificationFourier", "canine", "convnextv2", "cpmant", "funnel", "pp_lcnet", "qwen3_5_moe"),
    *("qwen3_5_moe_text", "reformer", "rwkv", "siglip2", "xlm"),
)
METHODS = ("attn_lrp", "gae", "transformer_attribution", "input_x_gradient")


def told(model: nn.Module, inputs: dict[str, Tensor], name: str) -> str | None:
    """What the diagnostics say of capture, where a method is asked once more."""
    spec = method_specs([name])[0]
    run = Prediction(model, batch_of(model, inputs), needs=spec.needs)
    report: str | None = spec(run.towards(None, run.outputs.explained(None, None))).diagnostics.get("capture")
    return report


def compared(
    model: nn.Module, several: list[dict[str, Tensor]], name: str, **options: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """Scores of inputs of one layout without capture, and with what was captured for the first of them."""
    with capturing(False):
        expected = [whyformer.attribute(model, inputs, name, **options) for inputs in several]
    captures.release()
    for _ in range(SIGHTS):
        whyformer.attribute(model, several[0], name, **options)
    return [whyformer.attribute(model, inputs, name, **options) for inputs in several], expected


def inputs_for(model: Any, head: zoo.Head) -> list[dict[str, Tensor]]:
    """Two batches of one layout: texts of other lengths, or other images; one text where there is no padding."""
    alone = getattr(model.config, "pad_token_id", None) is None and head is not zoo.IMAGE
    lengths = ((9,), (9,)) if alone else ((9, 5, 7), (8, 9, 4))
    return [zoo.batch(model, each, seed=seed, head=head) for seed, each in enumerate(lengths)]


def fits(model: nn.Module, inputs: dict[str, Tensor], name: str) -> bool:
    """Whether a method explains a model."""
    try:
        with capturing(False):
            whyformer.attribute(model, inputs, name)
    except WhyformerError:
        return False
    return True


def on_device(inputs: dict[str, Tensor], device: str) -> dict[str, Tensor]:
    """The tensors there, fractions in float32."""
    fractions = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
    return {name: tensor.to(device) for name, tensor in fractions.items()}


# What ends a capture


def moved(model: Any) -> None:
    """Its weights lie elsewhere."""
    weight = model.classifier.weight
    weight.data = weight.data.clone()


def changed(model: Any) -> None:
    """A weight has other numbers."""
    with torch.no_grad():
        model.classifier.weight.mul_(1.5)


def trained(model: Any) -> None:
    """It is in training mode."""
    model.train()


def hooked(model: Any) -> None:
    """Somebody looks at what a layer gives."""
    model.bert.encoder.layer[0].register_forward_hook(lambda module, args, output: None)


def hooked_before(model: Any) -> None:
    """Somebody looks at what a layer takes."""
    model.bert.encoder.layer[0].register_forward_pre_hook(lambda module, args: None)


def exchanged(model: Any) -> None:
    """A submodule is another one."""
    model.classifier = copy.deepcopy(model.classifier)


def exchanged_function(model: Any) -> None:
    """A function is another one."""
    model.bert.encoder.layer[0].intermediate.intermediate_act_fn = nn.Tanh()


def overridden(model: Any) -> None:
    """A forward is another one."""
    model.classifier.forward = lambda states: 2 * nn.functional.linear(states, model.classifier.weight)


def another_weight(model: Any) -> None:
    """A parameter is another one."""
    model.classifier.bias = nn.Parameter(model.classifier.bias.detach() + 1)


ENDS = [moved, changed, trained, hooked, hooked_before, exchanged, exchanged_function, overridden, another_weight]
