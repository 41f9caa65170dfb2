"""Run a model under the recorder, give it back as it was, and record the runs of one batch on demand."""

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import torch
from torch import Tensor, nn

from whyformer.errors import (
    BadInput,
    BadOption,
    NoAttention,
    RandomnessWarning,
    UncoveredOperation,
    UnsupportedModel,
    WhyformerError,
)
from whyformer.inputs.tensors import CONTENT, check_mask, check_one_text, tensors_of
from whyformer.models.cache import known
from whyformer.models.errors import CHECKPOINTED, FLEX, NO_GRADIENT, named_failures
from whyformer.models.lend import borrowed, evaluating, lock_of, parameters_of
from whyformer.models.load import device_of, input_embeddings, text_config, unwrapped
from whyformer.number_checks import is_far, refuse_if
from whyformer.recorder.attention import Attention
from whyformer.recorder.capture.mask_hints import masks
from whyformer.recorder.function_mode import Calls, RecordedCall, Recorder, TokenEmbeddings
from whyformer.recorder.lrp.composites import Composites, RunningActivations
from whyformer.recorder.lrp.forward_rules import NotWhileRunning, Running, Tap, acts_while_running
from whyformer.recorder.lrp.rule_sets import PLAIN, Book, check_closed, gradient_book
from whyformer.recorder.lrp.sites import Site, layouts, nodes_below
from whyformer.recorder.memory import check_fits, layer_paths, maps_estimate, recomputed
from whyformer.recorder.needs import Needs
from whyformer.recorder.patches import cells_of
from whyformer.recorder.trace import Layers, Reach, Trace, differentiating
from whyformer.registry.options import Count, validated
from whyformer.tasks.task import ModelOutputs, Task, call_of, output_of, said_by, task_of

if TYPE_CHECKING:
    from whyformer.recorder.capture.captures import Replay

Reached = tuple[Reach, str]  # how far down a book's gradient can be had, and what is said where it cannot

KEEP = "logits_to_keep"  # the argument of a language model that says at which positions it has to speak
# Of a model that calls other functions at each input, as one that loops over experts, each run is noted.
SIGNATURES = 16
REACHES = "reaches of gradients"  # the fact that a model's cache keeps under this name
MANY = 1024  # units, of which fewer have maps that fit
# How many copies of every attention map a run holds at the least: the first two as `whyformer cost` measures them, the
# third below what `transformer_attribution` took at 4,096 tokens, 1.8 (docs/cost.md).
COPIES = {"maps": 1.75, "sites": 3.5, "in turn": 1.5}


@dataclass(frozen=True)
class Edit:
    """A change of the embeddings before the model goes on with them.

    `at` says where: at the token embeddings, or at the input of the first layer (positions and norm included).
    """

    at: Literal["token_embeddings", "embedding_output"]
    change: Callable[[Tensor], Tensor]


@validated
def record(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    *,
    relevance: bool = True,
    maps: bool = True,
    book: str | Book | None = None,
    edit: Edit | None = None,
    first_layer: Annotated[int, Count(-1, 10_000, "no model calls more modules")] = -1,
) -> Trace:
    """Run an unmodified model once and keep what explanations need, in the graph.

    `inputs` is the mapping of tensors that the model's forward takes. The model is given back as it was, also if it
    raises. Without `relevance` the trace gives gradients only, and takes less time and memory; without `maps` as well,
    fused attention stays in its kernel, and there are no attention maps. Under a `book` that carries a gradient, its
    rules act while the model runs: the trace's gradients are those of the book, at the price of plain ones. `edit`
    changes the embeddings on the way; for one at `"embedding_output"`, `first_layer` is `layers.calls[0]` of an earlier
    trace of the same model. Runs of one model wait for each other, so that threads may share it.
    """
    _ = tensors_of(model, inputs)  # raises for what no forward takes
    needs = Needs(maps, relevance)
    if book is not None:
        chosen = gradient_book(book)
        if not acts_while_running(chosen):
            raise BadOption(f"the rules of {chosen.name} do not act while a model runs: record it with relevance=True")
        needs = Needs(maps, sites=False, book=chosen)
    return recorded(model, inputs, needs, edit=edit, first_layer=first_layer)


def recorded(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    needs: Needs,
    *,
    edit: Edit | None = None,
    first_layer: int = -1,
    checked: bool = False,
) -> Trace:
    """`record`, with what the run has to record as one value; numbers of inputs may have been `checked` before."""
    how = edit, first_layer, checked
    if needs.book is None:
        return _recorded(model, inputs, needs, None, *how)
    batch = next((len(t) for t in inputs.values() if t.dim()), 1)
    if needs.book is PLAIN:  # torch's own derivatives need no rule
        running = Running(PLAIN, batch, biases=needs.biases, tap=needs.tap)
        return _recorded(model, inputs, needs, running, *how)
    reaches = _reaches(model, needs, edit)
    varies = len(reaches) >= SIGNATURES
    for noting in (False, True) if reaches and not varies else (True,):
        running = Running(needs.book, batch, noting=noting, biases=needs.biases, tap=needs.tap)
        trace = _recorded(model, inputs, needs, running, *how)
        signature = tuple(running.signature)
        if noting or signature in reaches:
            break
    reach = reaches.get(signature) or _reach(trace, running)
    if not varies:
        reaches[signature] = reach
    trace.reach, trace.uncovered = reach
    return trace


def recorded_somehow(model: nn.Module, inputs: Mapping[str, Tensor], needs: Needs, **how: Any) -> Trace:
    """`recorded`, with sites if a book's rules cannot follow the model while it runs: they give the same gradients."""
    if needs.book is None or acts_while_running(needs.book):
        try:
            return recorded(model, inputs, needs, **how)
        except NotWhileRunning:
            if needs.low:
                raise
    return recorded(model, inputs, Needs(sites=True, last=needs.last), **how)


def _recorded(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    needs: Needs,
    running: Running | None,
    edit: Edit | None,
    first_layer: int,
    checked: bool,
) -> Trace:
    inputs = expanded(inputs)
    batch = _check_inputs(unwrapped(model), inputs, checked)
    _check_memory(unwrapped(model), inputs, needs, batch)
    edits = {first_layer: _leaf_of(edit)} if edit is not None and edit.at == "embedding_output" else {}
    one_run = partial(recorded, needs=Needs(maps=False))
    paths = layer_paths(unwrapped(model), inputs, one_run) if needs.low else ()
    with ExitStack() as stack:
        stack.enter_context(differentiating())
        model, kwargs = stack.enter_context(borrowed(model, inputs))
        calls = stack.enter_context(Calls(dict(model.named_modules()), _body(model), edits))
        at_embeddings = edit.change if edit is not None and edit.at == "token_embeddings" else None
        tokens = TokenEmbeddings(
            getattr(input_embeddings(model), "weight", None), kwargs.get("input_ids"), at_embeddings
        )
        recorder = Recorder(tokens, batch, calls, needs, running)
        if "inputs_embeds" in kwargs:
            embedded = kwargs["inputs_embeds"].detach()
            edited = at_embeddings(embedded) if at_embeddings else embedded
            tokens.leaf = kwargs["inputs_embeds"] = edited.requires_grad_()
        if "pixel_values" in kwargs:
            kwargs["pixel_values"] = recorder.pixels = kwargs["pixel_values"].detach().requires_grad_()
        kept = _last_positions(model, kwargs) if needs.last and KEEP not in kwargs else None
        if kept is not None:
            kwargs[KEEP] = torch.tensor(kept, device=kwargs["input_ids"].device)
        if needs.sites:
            stack.enter_context(Composites(recorder))
        if running is not None:
            stack.enter_context(RunningActivations(recorder))
        if running is not None and needs.low:
            stack.enter_context(recomputed(model, paths, partial(_again, model, recorder)))
        with recorder:
            output = output_of(model, call_of(model, kwargs)())
    how: dict[str, Any] = {"edited": edit is not None, "kept": kept, "count": len(kwargs.get(KEEP, ())) or None}
    return _trace(model, output, recorder, calls, kwargs.get("attention_mask"), **how)


@contextmanager
def _again(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Where layers are run once more under the rules of a run, in whichever thread a backward pass takes them up."""
    assert recorder.running is not None
    calls = Calls({}, None, {})
    running = Running(recorder.running.book, recorder.batch, tap=recorder.needs.tap)
    repeated = Recorder(recorder.tokens, recorder.batch, calls, recorder.needs, running)
    repeated.pixels = recorder.pixels
    with differentiating(), evaluating(model.modules()), RunningActivations(repeated), repeated:
        yield


def _last_positions(model: nn.Module, kwargs: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The positions of the last tokens of a batch, if the model can tell what it says at these alone."""
    ids = kwargs.get("input_ids")
    return None if ids is None or ids.dim() != 2 or not speaks_where_told(model) else last_positions(kwargs)


def speaks_where_told(model: nn.Module) -> bool:
    """Whether a model that speaks at every position can be told to do so at some alone.

    Some classifiers take that argument too.
    """
    return KEEP in parameters_of(model) and ((task := task_of(model)) is None or task.form == "token")


def last_positions(tensors: Mapping[str, Any]) -> tuple[int, ...]:
    """The positions of the last tokens of a batch, in order."""
    ids, mask = tensors["input_ids"], tensors.get("attention_mask")
    if mask is None or mask.shape != ids.shape:
        return (ids.shape[1] - 1,)
    ends = ids.shape[1] - 1 - mask.bool().flip(1).int().argmax(1)
    return tuple(sorted(set(ends.tolist())))


def _reaches(model: nn.Module, needs: Needs, edit: Edit | None) -> dict[tuple[str, ...], Reached]:
    """How far down a book's gradient can be had in this model, by what a run called."""
    reaches: defaultdict[Any, dict[tuple[str, ...], Reached]] = known(model).once(REACHES, partial(defaultdict, dict))
    return reaches[replace(needs, once=False), edit and edit.at]


def ways_known(model: nn.Module, needs: Needs) -> int:
    """How many sequences of calls of a model are known; a run that takes another one is done twice."""
    return 0 if needs.book is None else len(_reaches(model, needs, None))


def _reach(trace: Trace, running: Running) -> Reached:
    """How far down every function on the way has a rule, and which has none: to the inputs, the states, or nowhere."""
    states = trace.hidden[0] if isinstance(trace.layers, Layers) else None
    leaf = trace.pixels if trace.embeddings is None else trace.embeddings
    reach: Reach = "nowhere"
    for end, reached in ((states, "states"), (leaf, "inputs")):
        if end is None:
            continue
        try:
            check_closed(trace.logits, (end,), running.sites, running.book)
        except UncoveredOperation as uncovered:
            return reach, str(uncovered)  # the error itself would keep the graph
        reach = cast(Reach, reached)
    return reach, ""


def expanded(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs, with positions [1, units] that transformers takes for all examples repeated for each."""
    if len(inputs.get("position_ids", ())) != 1:
        return inputs if isinstance(inputs, dict) else dict(inputs)
    batch = next((len(inputs[name]) for name in CONTENT if name in inputs and inputs[name].dim()), 1)
    return {
        name: tensor.expand(batch, *tensor.shape[1:]) if name == "position_ids" and len(tensor) == 1 else tensor
        for name, tensor in inputs.items()
    }


def _check_inputs(model: nn.Module, inputs: Mapping[str, Any], checked: bool) -> int:
    """Raise if tensors cannot be a batch of texts or images for this model; the number of examples."""
    ids = inputs.get("input_ids")
    check_one_text(ids)
    tokens = ids if ids is not None else inputs.get("inputs_embeds")
    if tokens is not None and "attention_mask" in inputs and not checked:
        check_mask(inputs["attention_mask"], tokens.shape[:2])
    sizes = {name: t.shape[0] for name, t in inputs.items() if isinstance(t, Tensor) and t.dim()}
    if not sizes or len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise BadInput(f"inputs need one batch size; found {sizes or 'no tensors'}")
    if torch.get_default_device().type == "meta":
        raise BadInput("torch's default device is meta, which holds no numbers: torch.set_default_device('cpu')")
    flex = getattr(text_config(model), "_attn_implementation", None) == "flex_attention"
    if flex and not torch.cuda.is_available():  # it would be compiled first, and then fail
        raise NoAttention(f"{type(model).__name__} cannot be explained: {FLEX}")
    return next(iter(sizes.values()))


def _check_memory(model: nn.Module, inputs: Mapping[str, Tensor], needs: Needs, batch: int) -> None:
    """Raise if attention maps are to be opened that cannot fit, before they are computed."""
    tokens = inputs.get("input_ids", inputs.get("inputs_embeds"))
    if not needs.opened or tokens is None or tokens.dim() < 2 or tokens.shape[1] < MANY:
        return
    kind = "in turn" if needs.sites and needs.in_turn else "sites" if needs.sites else "maps"
    estimate = maps_estimate(model, batch, tokens.shape[1], COPIES[kind])
    if estimate is not None and not needs.low:
        check_fits(estimate, device_of(model), f"{type(model).__name__} on {batch} × {tokens.shape[1]} tokens")


def _trace(
    model: nn.Module,
    output: Any,
    recorder: Recorder,
    calls: Calls,
    mask: Tensor | None,
    *,
    edited: bool,
    kept: tuple[int, ...] | None,
    count: int | None,
) -> Trace:
    name, embeddings, lock = type(model).__name__, recorder.tokens.leaf, lock_of(model)
    if embeddings is None and recorder.pixels is None:
        raise UnsupportedModel(
            f"{name} was run, and no token embeddings were looked up: it does not take them from one table of tokens"
        )
    if recorder.random:
        warnings.warn(
            f"{name} applies dropout in eval mode too, so each run says something else, and so do its explanations",
            RandomnessWarning,
            stacklevel=3,
        )
    logits, task = _outputs(model, output, recorder.batch)
    layers: Layers | WhyformerError
    attentions = _without_pooling(recorder.attentions, calls)
    try:
        layers = _layers(name, attentions, calls, logits)
        shape = layers.hidden[-1].shape[:2]
        _check_shapes(name, layers, (recorder.batch, shape[1]) if embeddings is None else tuple(embeddings.shape[:2]))
        if not edited:  # an edited run follows one that was checked
            _check_layout(model, lock, logits, layers, attentions, embeddings)
    except UnsupportedModel as error:
        layers = error
        if embeddings is None and recorder.looked is None:
            raise
        shape = _units_of(recorder.looked) if embeddings is None else embeddings.shape[:2]
    if task.form == "token" and logits.shape[1] < (count or shape[1]):
        raise UnsupportedModel(
            f"{name} gives outputs at {logits.shape[1]} positions, and has states of {shape[1]} units"
        )
    attended = mask.bool() if mask is not None and mask.shape == shape else logits.new_ones(shape, dtype=torch.bool)
    first = -1 if isinstance(layers, WhyformerError) else layers.calls[0]
    absorbers = [(made, leaf) for made, leaf in recorder.absorbers if made > first]
    return Trace(
        outputs=ModelOutputs(logits, task, attended.to(logits.device), recorder.pixels is not None, kept),
        layers=layers,
        embeddings=embeddings,
        pixels=recorder.pixels,
        looked=recorder.looked,
        absorbers=tuple(leaf for _, leaf in absorbers),
        absorber_calls=tuple(made for made, _ in absorbers),
        sites=_with_last(recorder.sites),
        pooling=len(recorder.attentions) - len(attentions),
        book=recorder.needs.book,
        once=recorder.needs.once,
        at_biases=None if recorder.running is None else recorder.running.at_biases,
        at_maps=None if recorder.needs.tap is None or recorder.running is None else recorder.running.at_maps,
        lock=lock,
    )


def _units_of(looked: Tensor | None) -> torch.Size:
    """[batch, units] of images whose model has no one stack of layers."""
    assert looked is not None
    return torch.Size((looked.shape[0], math.prod(cells_of(looked))))


def _check_shapes(name: str, layers: Layers, due: tuple[int, ...]) -> None:
    """Raise if the states are not those of single units, [batch, units, width]."""
    odd = next((tuple(h.shape[:2]) for h in layers.hidden if tuple(h.shape[:2]) != due), None)
    if odd is not None:
        raise UnsupportedModel(
            f"the layers of {name} have states of shape {odd} for units of shape {due}, so they are not those of "
            "single units"
        )


def _check_layout(
    model: nn.Module,
    lock: AbstractContextManager[Any],
    logits: Tensor,
    layers: Layers,
    attentions: Sequence[Attention],
    embeddings: Tensor | None,
) -> None:
    """Raise if states or maps whose sizes do not tell where the examples are have them elsewhere than first.

    Maps are looked at once: batches of as many texts as there are heads are common.
    """
    batch, name = len(logits), type(model).__name__
    if batch == 1:
        return
    states = list(layers.hidden) if batch == layers.hidden[0].shape[1] else []
    if states and embeddings is not None:
        states.append(embeddings)
    seen = [(a.folded, a.probabilities) for a in attentions if a.probabilities is not None]
    unclear = [probabilities for folded, probabilities in seen if folded or probabilities.shape[1] == batch]
    facts = known(model)
    maps = [] if "maps are [batch, heads, …]" in facts else unclear
    with lock, differentiating(), named_failures(name, backward=True):
        laid_out = layouts(logits, [*states, *maps]) if states or maps else []
    elsewhere = [layout not in ("first", None) for layout in laid_out]
    if any(elsewhere):
        what = "states" if any(elsewhere[: len(states)]) else "attention maps"
        raise UnsupportedModel(
            f"{name} computes {what} whose first dimension is not that of the examples, so they are not known for each"
        )
    if maps and all(layout == "first" for layout in laid_out[len(states) :]):
        facts["maps are [batch, heads, …]"] = True


def _with_last(sites: Sequence[Site]) -> list[Site]:
    """The sites, with those after the last attention marked."""
    after = max((n for n, site in enumerate(sites) if site.kind == "attend"), default=len(sites))
    return [*sites[:after], *(replace(site, last=True) for site in sites[after:])]


def _without_pooling(attentions: Sequence[Attention], calls: Calls) -> Sequence[Attention]:
    """The attention maps without those of the head: behind the last layer, one query for each example.

    By such a map SigLIP pools its units. It mixes none of them, so it is part of how the head reads the last layer.
    """
    kept = len(attentions)
    while kept > 1 and attentions[kept - 1].size[0] == 1 and not calls.holds_alone(kept - 1):
        kept -= 1
    return attentions[:kept]


def _layers(name: str, attentions: Sequence[Attention], calls: Calls, logits: Tensor) -> Layers:
    if not attentions and not logits.requires_grad:
        raise UnsupportedModel(f"{name} cannot be explained: {NO_GRADIENT}")
    if not attentions and _runs_under_checkpoint(logits):
        raise NoAttention(f"{name} was run and no attention was seen: {CHECKPOINTED}")
    if not attentions:
        raise NoAttention(
            f"{name} was run and no attention was seen. If it is a Transformer, load it with "
            "attn_implementation='sdpa' or 'eager': flash and flex kernels cannot be looked into, nor attention "
            "written as a product of single numbers"
        )
    numbers = calls.layers(len(attentions))
    if numbers is None:
        raise UnsupportedModel(
            f"{name} has attention that lies in no layer of its own ({len(attentions)} maps were seen), so its "
            "hidden states are not known"
        )
    made = [calls.made[number] for number in numbers]
    _check_stack(name, made, calls)
    if any(call.overwritten for call in made):
        raise UnsupportedModel(f"{name} changes the states between its layers in place, so they are lost")
    hidden = calls.hidden(numbers)
    if len(hidden) != len(made) + 1:
        raise UnsupportedModel(f"the states between the layers of {name} were not seen")
    units = hidden[-1].shape[1]
    shapes = {a.size for a in attentions} | {(h.shape[1], h.shape[1]) for h in hidden}
    if shapes != {(units, units)}:
        raise UnsupportedModel(f"{name} has attention maps of shapes {sorted(shapes)} for {units} units")
    maps = tuple((a.probabilities, a.values) for a in attentions)
    return Layers(maps, tuple(hidden), tuple(numbers), tuple(call.path for call in made))


def _runs_under_checkpoint(logits: Tensor) -> bool:
    """Whether a part of the graph is there only once it is run again: `torch.utils.checkpoint`, the reentrant form."""
    return any(node.name().startswith("CheckpointFunction") for node in nodes_below([logits.grad_fn]))


def _check_stack(name: str, layers: Sequence[RecordedCall], calls: Calls) -> None:
    """Raise unless the layers are one stack, and each of its layers holds attention."""
    stacks = {layer.path.rpartition(".")[0] for layer in layers}
    if len(stacks) > 1:
        raise UnsupportedModel(
            f"{name} has its attention in several stacks of layers ({', '.join(sorted(stacks))}), as an encoder and a "
            "decoder; methods are defined for one stack"
        )
    others = [c.path for c in calls.made if c.path.rpartition(".")[0] in stacks and not c.attentions]
    if others:
        raise UnsupportedModel(
            f"{name} has layers without attention ({', '.join(dict.fromkeys(others))}), so its attention maps do not "
            "tell how units mix"
        )


def _outputs(model: nn.Module, output: Any, batch: int) -> tuple[Tensor, Task]:
    """What the model said, as numbers that can be asked for, and what they mean."""
    name = type(model).__name__
    with differentiating():
        read = said_by(model, output)
    if read is None:
        logits = getattr(output, "logits", None)
        returned = f"logits of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else "no logits"
        raise UnsupportedModel(
            f"{name} returns {returned}; needed are logits [batch, classes], start and end logits of an answer, or "
            "logits [batch, units, vocabulary]"
        )
    logits, task = read
    if not is_far(logits):  # there, whoever looks at the scores looks at these too
        check_finite(logits, name)
    if len(logits) != batch:
        raise UnsupportedModel(f"{name} returns logits of shape {tuple(logits.shape)} for a batch of {batch}")
    return logits, task


def check_finite(logits: Tensor, name: str) -> None:
    """Raise if a model says what are no numbers."""
    refuse_if(
        ~torch.isfinite(logits.detach()).all(),
        UnsupportedModel(
            f"{name} returns logits that are not numbers (NaN or infinite) for this input, so there is nothing to "
            "explain; check its weights, or load it in float32"
        ),
    )


def _leaf_of(edit: Edit) -> Callable[[Tensor], Tensor]:
    return lambda states: edit.change(states.detach()).requires_grad_()


def _body(model: nn.Module) -> nn.Module | None:
    """The model without its head."""
    body = getattr(model, "base_model", None)
    return body if isinstance(body, nn.Module) and body is not model else None


class RecordedRuns:
    """The runs of a model on a batch, which all predictions of it share; each is recorded when it is first asked for.

    The numbers of `tensors` were checked by whoever made the batch. `needs` is what was known beforehand. A run serves
    whatever needs no more than it recorded. `edited` has the change of the embeddings in every run, if there is one.
    Of texts that are `padded`, no run has to look whether they are.
    """

    def __init__(
        self,
        model: nn.Module,
        tensors: Mapping[str, Tensor],
        needs: Needs,
        trace: Trace | None = None,
        edited: Mapping[str, Any] | None = None,
        *,
        padded: bool = False,
    ):
        self.model, self.tensors, self.needs = model, tensors, needs
        self.traces: list[Trace] = [] if trace is None else [trace]
        self.edited = dict(edited or {})
        self.padded = padded
        self.replay: Replay | None = None  # in place of a run that only has to tell what the model says
        self.may_be_replayed = trace is None and not self.edited

    @property
    def trace(self) -> Trace:
        """Any run, for what all have: outputs, states, embeddings."""
        return self.traces[0] if self.traces else self._record(self.needs)

    @property
    def _unspent(self) -> list[Trace]:
        """The runs that can still be differentiated."""
        return [trace for trace in self.traces if not trace.spent]

    @property
    def unspent(self) -> Trace:
        """Any run that can still be differentiated; that which was known to be needed, if there is none yet."""
        if not self.traces:
            self._record(self.needs)
        return next(iter(self._unspent), None) or self.plain

    @property
    def plain(self) -> Trace:
        """A run whose gradients are torch's own."""
        plain = next((t for t in self._unspent if t.book is None), None)
        return self._record(self.needs.without_book()) if plain is None else plain

    @property
    def opened(self) -> Trace:
        """A run whose gradients are torch's own, with attention maps."""
        opened = next((t for t in self._unspent if t.book is None and t.cannot_be_opened_further), None)
        return self._record(replace(self.needs.without_book(), maps=True)) if opened is None else opened

    @property
    def with_maps(self) -> Trace:
        """Any run with attention maps."""
        return next((t for t in self.traces if t.is_opened), None) or self.opened

    def tapped(self, tap: Tap, book: Book) -> Trace | None:
        """A run with a tap under a book, if that is what was known to be asked for and can be had."""
        if self.needs.tap is not tap or self.needs.book != book:
            return None
        tapped = next((t for t in self._unspent if t.at_maps is not None), None) or self._record(self.needs)
        return tapped if tapped.at_maps is not None and tapped.has_layers and tapped.reach != "nowhere" else None

    @property
    def traced(self) -> Trace:
        """The run with sites."""
        traced = next((t for t in self.traces if t.sites), None)
        return self._record(Needs(sites=True, last=self.needs.last)) if traced is None else traced

    def under(self, book: Book, *, maps: bool = False, at_inputs: bool = False, biases: bool = False) -> Trace:
        """A run whose gradients are those of a book, down to the inputs if asked; or else the one with sites."""
        if not acts_while_running(book) or any(t.sites for t in self.traces):
            return self.traced
        reaching = ("inputs",) if at_inputs else ("inputs", "states")
        of_book = [t for t in self._unspent if t.book == book and (t.at_biases is not None or not biases)]
        recorded_under = next((t for t in of_book if t.cannot_be_opened_further or not maps), None)
        if recorded_under is None:
            recorded_under = self._record(
                Needs(maps, book=book, biases=biases, last=self.needs.last, low=self.needs.low)
            )
        return recorded_under if recorded_under.sites or recorded_under.reach in reaching else self.traced

    def _record(self, needs: Needs) -> Trace:
        """Record a run; one with sites if a book's rules cannot follow the model while it runs."""
        with masks(needed=self.padded or None):
            trace = recorded_somehow(self.model, self.tensors, needs, checked=True, **self.edited)
        self.traces.append(trace)
        return trace
