"""Attribute: scores for ready tensors, of any module that returns logits."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

import whyformer.methods  # noqa: F401  (registers the methods)
from whyformer.errors import BadOption
from whyformer.explain.inputs import of_chosen_rows
from whyformer.inputs.batch import Batch, batch_of
from whyformer.methods.default import Effort, methods_for, usual_in_steps, usual_method_for, with_options
from whyformer.methods.method import MethodSpec
from whyformer.prediction import Prediction
from whyformer.recorder.capture.captures import capturing
from whyformer.recorder.needs import Memory
from whyformer.registry.options import validated
from whyformer.tasks.targets import Target, plain_target
from whyformer.tasks.task import Explains


@validated
def attribute(
    model: nn.Module,
    inputs: Mapping[str, Tensor] | Tensor | tuple[Tensor, ...],
    method: str | MethodSpec = "auto",
    *,
    target: Target = None,
    versus: Target = None,
    explains: Explains | None = None,
    effort: Effort | None = None,
    memory: Memory = "usual",
    capture: bool = True,
    **options: Any,
) -> Tensor:
    """Scores for ready tensors, [batch, units]; no tokenizer needed.

    `inputs` is the mapping of tensors that the model's forward takes; of a module that is not of transformers also the
    tensors themselves, in its order. Its first one holds tokens, embeddings or pixels, and it returns logits [batch,
    classes], or has them first in a tuple, or as `logits` in a dict. `method`, `explains` and `effort` are as in
    `Explainer.explain`; the method that is recorded for a model is not looked at. Of a model that chooses among texts
    the units are those of the chosen row. `memory="low"` runs layers again instead of keeping what they computed, for
    prompts that would not fit. On a GPU what is asked again of inputs of one shape is captured, and then replayed
    without Python; with `capture=False` it is not.
    """
    with capturing(capture):
        batch: Batch = batch_of(model, inputs)
        usual = usual_method_for(model, batch) if isinstance(method, str) and method == "auto" else None
        spec = with_options(methods_for(None, [method], effort, usual=usual)[0], model, options)
        if spec.is_made_of_usual:
            spec = spec.made_of_label(usual_in_steps(usual_method_for(model, batch)))
        if batch.choices is not None:
            if explains == "log_odds":
                raise BadOption("explains='log_odds': the units of several choices stand in several rows: leave it out")
            return spec(of_chosen_rows(Prediction(model, batch), target, versus, spec.needs)).total
        at_the_end = not any(isinstance(each, tuple | list) for each in (plain_target(target), plain_target(versus)))
        needs = replace(spec.needs.within(memory, spec.label), last=at_the_end)
        run = Prediction(model, batch, needs=needs)
        prediction = run.towards(target, run.outputs.explained(explains, versus, spec.quantity))
        _ = prediction.versus  # what is wrong with it is said, whatever the method
        return spec(prediction).total
