"""Trace: what one forward pass computed, still in the graph, and the backward passes over it."""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from whyformer.errors import BadInput, BadOption, NoAttention, UnsupportedModel
from whyformer.load import text_config
from whyformer.recorder.books import Book, book_named, check_closed
from whyformer.recorder.calls import Calls
from whyformer.recorder.composites import Composites
from whyformer.recorder.mode import Recorder, finite
from whyformer.recorder.sites import Site, governed

Target = int | Sequence[int] | Tensor | None
_RECORDING = threading.RLock()
Tensors = TypeVar("Tensors", Tensor, tuple[Tensor, ...])


@contextmanager
def differentiating() -> Iterator[None]:
    """A graph is built here, in the model's own precision, whatever mode the caller is in."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


@dataclass(frozen=True)
class Edit:
    """A change of the embeddings before the model goes on with them.

    `at` says where: at the token embeddings, or at the input of the first layer (positions and norm included).
    """

    at: Literal["embeddings", "hidden"]
    change: Callable[[Tensor], Tensor]


@dataclass
class Trace:
    """One forward pass. Tensors are in the graph; tuples run over the layers, first layer first.

    | name | shape |
    |---|---|
    | `logits` | [batch, classes] |
    | `attention` | tuple of [batch, heads, queries, keys] |
    | `values` | tuple of [batch, heads, keys, width], repeated where query heads share them |
    | `hidden` | tuple of [batch, units, width]; the embedding output first, then the output of each layer |
    | `embeddings` | [batch, units, width]: the token embeddings, before positions and norm |
    """

    logits: Tensor
    attention: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    hidden: tuple[Tensor, ...]
    embeddings: Tensor | None
    first_layer_call: int = field(repr=False, default=-1)
    sites: Sequence[Site] = field(repr=False, default=())

    @differentiating()
    def output(self, target: Target = None, versus: Target = None) -> Tensor:
        """The explained outputs, [batch]: the target's logit, or its distance from the logit of `versus`.

        Without a target it is the predicted class of each example.
        """
        outputs = self.logits.gather(1, self._classes(target)[:, None]).squeeze(1)
        if versus is None:
            return outputs
        return outputs - self.logits.gather(1, self._classes(versus)[:, None]).squeeze(1)

    def gradient(self, of: Tensors, target: Target = None, versus: Target = None) -> Tensors:
        """The gradient of each example's explained output with respect to tensors of this trace."""
        return self.gradient_of(self.output(target, versus), of)

    @differentiating()
    def gradient_of(self, outputs: Tensor, of: Tensors) -> Tensors:
        """The gradient of any outputs [batch] computed from `logits`, each example's own."""
        tensors = (of,) if isinstance(of, Tensor) else of
        gradients = torch.autograd.grad(outputs.sum(), tensors, retain_graph=True, allow_unused=True)
        found = tuple(torch.zeros_like(t) if g is None else g for t, g in zip(tensors, gradients, strict=True))
        return found[0] if isinstance(of, Tensor) else found

    @differentiating()
    def relevance(
        self, of: Tensors, book: str | Book = "z_plus", target: Target = None, versus: Target = None
    ) -> Tensors:
        """The relevance of each example's explained output at tensors of this trace, under a rule book.

        Another backward pass over the same graph, from 1 at the target (and -1 at `versus`), with the book's rules in
        place of derivatives. Raises `UncoveredOperation` before any number is computed if a function has no rule.
        """
        if not self.sites:
            raise BadOption("this trace was recorded with relevance=False")
        chosen = book_named(book)
        tensors = (of,) if isinstance(of, Tensor) else of
        check_closed(self.logits, tensors, self.sites, chosen)
        if self.logits.dtype not in (torch.float32, torch.float64):
            raise UnsupportedModel(f"relevance is lost to rounding in {self.logits.dtype}; load the model in float32")
        one = torch.ones_like(self.logits[:, :1])
        start = torch.zeros_like(self.logits).scatter_add(1, self._classes(target)[:, None], one)
        if versus is not None:
            start = start.scatter_add(1, self._classes(versus)[:, None], -one)
        with governed(self.sites, chosen.rule_of):
            found = torch.autograd.grad(self.logits, tensors, start, retain_graph=True, allow_unused=True)
        relevances = tuple(torch.zeros_like(t) if r is None else r for t, r in zip(tensors, found, strict=True))
        return relevances[0] if isinstance(of, Tensor) else relevances

    @cached_property
    @differentiating()
    def reader(self) -> Tensor:
        """How the head reads the last layer, [batch, units]: 1 at the one position it reads, or equal shares.

        It is found by asking the graph: the head reads the positions of the last layer's output at which some logit
        has a gradient. That is the first one in BERT, the last real token in a causal classifier, all real tokens
        under mean pooling.
        """
        directions = torch.linspace(1, 2, self.logits.shape[-1], device=self.logits.device).to(self.logits.dtype)
        last = self.gradient_of((self.logits * directions).sum(-1), self.hidden[-1])
        read = last.ne(0).any(-1).to(torch.promote_types(last.dtype, torch.float32))  # [batch, units]
        if not bool(read.any(-1).all()):
            raise UnsupportedModel(
                "the logits do not depend on the last layer's output, so no position of it can be explained"
            )
        return read / read.sum(-1, keepdim=True)

    def _classes(self, target: Target) -> Tensor:
        batch, classes = self.logits.shape
        if target is None:
            return self.logits.argmax(-1)
        chosen = torch.as_tensor(target, device=self.logits.device)
        if chosen.dim() > 1 or (chosen.dim() == 1 and len(chosen) != batch):
            raise BadOption(f"target {target!r}: give one class, or one for each of the {batch} examples")
        if chosen.is_floating_point() or bool(((chosen < 0) | (chosen >= classes)).any()):
            raise BadOption(f"target {target!r} is not a class of this model: it has the classes 0 … {classes - 1}")
        return chosen.long().expand(batch)


def record(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    *,
    relevance: bool = True,
    edit: Edit | None = None,
    first_layer: int = -1,
) -> Trace:
    """Run an unmodified model once and keep what explanations need, in the graph.

    `inputs` is the mapping of tensors that the model's forward takes. The model is given back as it was, also if it
    raises. Without `relevance` the trace gives gradients only, and takes less time and memory. `edit` changes the
    embeddings on the way; for one at `"hidden"`, `first_layer` is the `first_layer_call` of an earlier trace of the
    same model. Runs wait for each other, so that threads may share a model.
    """
    model = getattr(model, "_orig_mod", model)  # a compiled model runs as the model it was made from
    device = next(model.parameters()).device
    kwargs: dict[str, Any] = {name: value.to(device) for name, value in inputs.items()}
    batch = _batch_size(kwargs)
    if "use_cache" in inspect.signature(model.forward).parameters:
        kwargs["use_cache"] = False
    if getattr(getattr(model, "config", None), "return_dict", True) is False:
        kwargs["return_dict"] = True
    edits = {first_layer: _leaf_of(edit)} if edit is not None and edit.at == "hidden" else {}
    modules = dict(model.named_modules())
    with ExitStack() as stack:
        stack.enter_context(_RECORDING)
        stack.enter_context(differentiating())
        stack.enter_context(_evaluating(modules.values()))
        kwargs = stack.enter_context(_with_padding_id(model, kwargs, batch))
        calls = stack.enter_context(Calls(modules, edits))
        at_embeddings = edit.change if edit is not None and edit.at == "embeddings" else None
        recorder = Recorder(_embedding_weight(model), batch, at_embeddings, calls, relevance)
        if "inputs_embeds" in kwargs:
            given = kwargs["inputs_embeds"].detach()
            kwargs["inputs_embeds"] = recorder.embeddings = (
                at_embeddings(given) if at_embeddings else given
            ).requires_grad_()
        if relevance:
            stack.enter_context(Composites(recorder))
        with recorder:
            output = model(**kwargs)
    return _trace(model, output, recorder, calls)


def _trace(model: nn.Module, output: Any, recorder: Recorder, calls: Calls) -> Trace:
    name = type(model).__name__
    if not recorder.attentions:
        raise NoAttention(
            f"{name} was run and no attention was seen. If it is a Transformer, load it with "
            "attn_implementation='sdpa' or 'eager': flash and flex kernels cannot be looked into"
        )
    logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        found = "no logits" if not isinstance(logits, Tensor) else f"logits of shape {tuple(logits.shape)}"
        raise UnsupportedModel(f"{name} returns {found}; a classifier with logits [batch, classes] is needed")
    if not finite(logits):
        raise UnsupportedModel(
            f"{name} returns logits that are not numbers (NaN or infinite) for this input, so there is nothing to "
            "explain; check its weights, or load it in float32"
        )
    layers = calls.layers(len(recorder.attentions))
    if layers is None:
        raise UnsupportedModel(
            f"{name} has attention that lies in no layer of its own ({len(recorder.attentions)} maps were seen), so "
            "its hidden states are not known"
        )
    made = [calls.made[number] for number in layers]
    hidden = [made[0].input, *(call.output for call in made)]
    return Trace(
        logits=logits,
        attention=tuple(a.probabilities for a in recorder.attentions),
        values=tuple(a.values for a in recorder.attentions),
        hidden=tuple(h for h in hidden if h is not None),
        embeddings=recorder.embeddings,
        first_layer_call=layers[0],
        sites=recorder.sites,
    )


def _batch_size(inputs: Mapping[str, Tensor]) -> int:
    sizes = {name: t.shape[0] for name, t in inputs.items() if isinstance(t, Tensor) and t.dim()}
    if not sizes or len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise BadInput(f"inputs need one batch size; found {sizes or 'no tensors'}")
    return next(iter(sizes.values()))


def _leaf_of(edit: Edit) -> Callable[[Tensor], Tensor]:
    return lambda states: edit.change(states.detach()).requires_grad_()


def _embedding_weight(model: nn.Module) -> Tensor | None:
    get: Any = getattr(model, "get_input_embeddings", lambda: None)
    return getattr(get(), "weight", None)


@contextmanager
def _evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """In eval mode, and then each submodule in the mode it was in."""
    training = [module for module in modules if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _with_padding_id(model: nn.Module, inputs: dict[str, Any], batch: int) -> Iterator[dict[str, Any]]:
    """A batch for a model that knows no padding token, as GPT-2: its classifier looks for the last other token.

    For this run the padding token is one that no text of the batch holds.
    """
    config = text_config(model)
    if config is None or "input_ids" not in inputs or getattr(config, "pad_token_id", 0) is not None:
        yield inputs
        return
    ids = inputs["input_ids"]
    attended = inputs.get("attention_mask", torch.ones_like(ids)).bool()
    if attended.shape != ids.shape or (batch == 1 and bool(attended.all())):
        yield inputs
        return
    used = set(ids[attended].tolist())
    unused = next(i for i in range(len(used) + 1) if i not in used)
    try:
        config.pad_token_id = unused
        yield {**inputs, "input_ids": ids.masked_fill(~attended, unused)}
    finally:
        config.pad_token_id = None
