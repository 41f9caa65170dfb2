"""Captures: runs of a model on inputs of one shape that a GPU does again without Python, and the model's state then."""

import itertools
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whyformer.errors import WhyformerError
from whyformer.inputs.batch import Batch, longest_for
from whyformer.inputs.tensors import CONTENT, accepts
from whyformer.models.lend import lock_of
from whyformer.models.load import device_of, text_config, unwrapped
from whyformer.models.snapshot import State, surroundings
from whyformer.recorder.capture.graphs import Graphs
from whyformer.recorder.capture.mask_hints import masks
from whyformer.recorder.needs import Needs
from whyformer.recorder.recording import KEEP, last_positions, recorded_somehow, speaks_where_told, ways_known
from whyformer.recorder.trace import Trace
from whyformer.tasks.task import ModelOutputs, task_of

MOST_UNITS = 4096  # of all examples together: of more, a device has enough to do while Python asks for the next
PATCH = 256  # pixels that count as one unit
SIGHTS = 2  # runs of a shape, after which it is captured
SIGHTS_OF_MANY = 16  # the same of many examples: a capture takes as long as some runs, and saves less of each
MANY = 1024  # units of several examples
SHARE = 0.1  # of a device's memory, that captures hold at most; then those that were used longest ago go
LENGTHS = (16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512)  # that shorter texts are padded to
PADDED = {"input_ids", "attention_mask", "token_type_ids"}  # what there is for each token, and is known for padding
DEVICES = ("cuda",)
REMEMBERED = 4096  # shapes that were seen; more are forgotten

_ALLOWED: ContextVar[bool] = ContextVar("capture", default=True)
_MOMENTS = itertools.count()


class NotCaptured(WhyformerError):
    """Why a run, or what a method makes of it, is not captured."""


@contextmanager
def capturing(allowed: bool) -> Iterator[None]:
    """In it, runs are captured and replayed, unless that is not allowed here or around it."""
    before = _ALLOWED.set(allowed and _ALLOWED.get())
    try:
        yield
    finally:
        _ALLOWED.reset(before)


@dataclass(frozen=True)
class BatchLayout:
    """How inputs lie in the tensors of a captured run.

    `sizes` has the name, shape and type of each. Texts may be `padded`, so that many lengths share a run. `special`
    says whether a batch tells which positions are, `examples` whether it knows its texts.
    """

    sizes: tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
    padded: bool
    special: bool
    examples: bool

    @property
    def is_masked(self) -> bool:
        """Whether positions may be masked."""
        return any(name == "attention_mask" for name, *_ in self.sizes)


class Captures:
    """Of one model: the runs that were captured in its present state, how often others were seen, and why not."""

    def __init__(self, model: nn.Module):
        self.lock: AbstractContextManager[Any] = lock_of(model)
        self.state = State(model)
        self.runs: dict[Any, CapturedRun] = {}
        self.seen: Counter[Any] = Counter()
        self.refused: dict[Any, str] = {}
        self.length_matters = False  # whether padding changes what this model says
        self.in_half_precision = any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters())

    def capture_exact_shapes(self) -> None:
        """From now on, capture no texts that are padded."""
        self.length_matters = True
        self.runs = {key: run for key, run in self.runs.items() if not run.layout.padded}

    @property
    def memory(self) -> int:
        """Bytes that its captures hold."""
        return sum(run.graphs.memory for run in self.runs.values())


_OF: "weakref.WeakKeyDictionary[nn.Module, Captures]" = weakref.WeakKeyDictionary()


def captures_of(model: nn.Module) -> Captures:
    """The captures of a model in its present state: if it is not what it was, there are none any more."""
    model = unwrapped(model)
    known = _OF.get(model)
    if known is None or not known.state.holds():
        known = _OF[model] = Captures(model)
    return known


def known_captures() -> list[Captures]:
    """Those of all models."""
    return list(_OF.values())


def release() -> None:
    """Let go of all captures, and of the memory that they hold."""
    for captures in _OF.values():
        for run in captures.runs.values():
            run.graphs.wait()
    _OF.clear()


class CapturedRun:
    """A run of a model on inputs of one layout as a CUDA graph, and what methods make of it, each as another one.

    Its tensors have always the same places. `turn` says whose numbers they hold.
    """

    def __init__(self, model: nn.Module, layout: BatchLayout, needs: Needs, laid_out: "LaidOut"):
        self.layout, self.needs = layout, needs
        self.lock = lock_of(model)
        self.graphs = Graphs(device_of(model))
        self.turn: object = None
        self.used = next(_MOMENTS)
        self.passes: dict[Any, Any] = {}  # by method, options and form of the target: whoever makes them knows what
        self.inputs = {name: torch.empty_like(tensor) for name, tensor in laid_out.tensors.items()}
        self.special = None if laid_out.special is None else torch.empty_like(laid_out.special)
        self.put(laid_out)
        with self.graphs.aside():  # once, so that what torch and CUDA prepare is there
            self._mask_some()
            recorded_somehow(model, self.inputs, needs, checked=True)
        known = ways_known(model, needs)
        self._capture(model)
        if ways_known(model, needs) > known:  # while it is captured, a model may go another way, and was run twice now
            del self.graph, self.trace, self.masked  # no graph may be let go while another is captured
            self.graphs = Graphs(device_of(model))
            self._capture(model)

    def _capture(self, model: nn.Module) -> None:
        one_text = not self.layout.is_masked and "position_ids" not in self.inputs
        with self.graphs.captured() as self.graph, masks(needed=False if one_text else None):
            self.trace: Trace = recorded_somehow(model, self.inputs, self.needs, checked=True)
            mask = self.inputs.get("attention_mask")
            self.masked = None if mask is None else mask.eq(0)

    def _mask_some(self) -> None:
        """Mask a position, if any may be: a model that looks whether there are some ignores a mask that has none."""
        mask = self.inputs.get("attention_mask")
        if mask is not None and mask.shape[-1] > 1:
            mask.data[..., -1] = 0

    def put(self, laid_out: "LaidOut") -> None:
        """Copy numbers to where the run reads them."""
        self.turn = None
        for name, tensor in laid_out.tensors.items():
            self.inputs[name].data.copy_(tensor)  # autograd need not know: the graph is replayed as well
        if self.special is not None and laid_out.special is not None:
            self.special.data.copy_(laid_out.special)

    @property
    def batch(self) -> Batch:
        """What the run reads, as a batch whose texts nobody may look at."""
        ids = self.inputs.get("input_ids")
        masked = torch.zeros_like(ids, dtype=torch.bool) if self.masked is None and ids is not None else self.masked
        examples = Unread(len(next(iter(self.inputs.values())))) if self.layout.examples else ()
        return Batch(self.inputs, masked, self.special, examples).known(is_padded=self.layout.is_masked)


class Unread(tuple[Any, ...]):
    """Examples of a captured run: they are others each time, so that nobody may look at them."""

    def __new__(cls, count: int) -> "Unread":
        """As many as there are."""
        return super().__new__(cls, [None] * count)

    def __iter__(self) -> Iterator[Any]:
        raise NotCaptured("it looks at the texts themselves, not only at their tensors")

    def __getitem__(self, place: Any) -> Any:
        raise NotCaptured("it looks at the texts themselves, not only at their tensors")


@dataclass(frozen=True)
class LaidOut:
    """The tensors of a batch as a captured run takes them."""

    tensors: dict[str, Tensor]
    special: Tensor | None
    units: int | None  # that the batch has, if it was padded with more
    kept: tuple[int, ...] | None  # of a language model, the positions that have logits


class Replay:
    """One batch in a captured run: what the model says of it, and, while it holds its numbers, all else."""

    def __init__(self, run: CapturedRun, laid_out: LaidOut):
        self.run, self.laid_out = run, laid_out
        self._turn = object()
        with self.turn():
            self.outputs = self._outputs()

    @contextmanager
    def turn(self) -> Iterator[CapturedRun]:
        """The run with the numbers of this batch; meanwhile nobody else has it."""
        run = self.run
        with run.lock, run.graphs.replaying():
            if run.turn is not self._turn:
                run.put(self.laid_out)
                run.graph.replay()
                run.turn, run.used = self._turn, next(_MOMENTS)
            yield run

    def _outputs(self) -> ModelOutputs:
        outputs, units = self.run.trace.outputs, self.laid_out.units
        logits, kept = outputs.logits.detach(), self.laid_out.kept
        if outputs.task.form == "token":
            logits = logits[:, : units if kept is None else len(kept)]  # as many as there are, if not padded
        return replace(outputs, logits=logits.clone(), attended=outputs.attended[:, :units].clone(), kept=kept)


def replay_of(model: nn.Module, batch: Batch, needs: Needs) -> Replay | None:
    """A batch in the run that was captured for such ones, if there is one."""
    model = unwrapped(model)
    captures = _OF.get(model) if _ALLOWED.get() else None
    if captures is None or not captures.runs:
        return None
    with captures.lock:
        run = captures.runs.get(key_of(model, batch, needs))
        if run is None or not captures.state.lies_still():  # a replay reads weights where they were
            return None
        replay = Replay(run, lay_out(model, batch, run.layout, run.needs))
        if captures.state.holds():  # looked at while the device works
            return replay
        del _OF[model]
        return None


def key_of(model: nn.Module, batch: Batch, needs: Needs) -> Any:
    """What a captured run is known by."""
    return layout_of(model, batch, needs), needs_of_capture(needs), surroundings()


def needs_of_capture(needs: Needs) -> Needs:
    """The needs of a captured run, which is differentiated many times; its layout says at which positions it speaks."""
    return replace(needs, once=False, last=False)


def misfit(model: nn.Module, batch: Batch, needs: Needs) -> str | None:
    """Why a batch is not captured, if it is not, before that is tried; nothing is said of what is no GPU."""
    task = task_of(model)
    if needs.low:
        return "layers are run again, in memory='low'"
    if task is not None and (task.in_parts or task.compares):
        return f"it {task.does}, which is read between two passes"
    if len(set(getattr(model, "hf_device_map", {}).values())) > 1:
        return "the model lies on several devices"
    units = _units(batch)
    if units > MOST_UNITS:
        return f"{units} units are enough to do for a device while Python asks for what comes next"
    ids = batch.tensors.get("input_ids")
    unpadded = getattr(text_config(model), "pad_token_id", 0) is None
    if ids is not None and unpadded and (len(ids) > 1 or batch.is_padded):
        return "the model has no padding token, and is given one for each batch of texts"
    return None


def is_seen_often(batch: Batch, times: int) -> bool:
    """Whether a shape was seen so often that it is captured."""
    content = _content(batch)
    return times >= (SIGHTS_OF_MANY if len(content) > 1 and _units(batch) > MANY else SIGHTS)


def _content(batch: Batch) -> Tensor:
    """Its tokens, embeddings or pixels."""
    return next(tensor for name, tensor in batch.tensors.items() if name in CONTENT)


def _units(batch: Batch) -> int:
    """Of all examples together; of images about as many as they cost."""
    content = _content(batch)
    return content[:, 0].numel() // PATCH if batch.is_images else content.shape[0] * content.shape[1]


def is_possible(model: nn.Module) -> bool:
    """Whether runs of a model are to be captured."""
    return _ALLOWED.get() and device_of(model).type in DEVICES


def layout_of(model: nn.Module, batch: Batch, needs: Needs) -> BatchLayout:
    """Where the tensors of a batch would lie: texts padded to one of a few lengths, if that is known to do no harm."""
    ids, tensors = batch.tensors.get("input_ids"), batch.tensors
    padded_to = None if ids is None else _padded_length(model, batch)
    count = len(next(iter(tensors.values())))
    if padded_to is None:
        left_out = {"attention_mask"} if ids is not None and not batch.is_padded else set()
        sizes = {name: (tuple(t.shape), t.dtype) for name, t in tensors.items() if name not in left_out}
    else:
        sizes = {name: ((count, padded_to), t.dtype) for name, t in tensors.items()}
        sizes.setdefault("attention_mask", ((count, padded_to), torch.long))
    if needs.last and ids is not None and speaks_where_told(model):
        sizes[KEEP] = ((count,), torch.long)
    of = tuple((name, *size) for name, size in sorted(sizes.items()))
    return BatchLayout(of, padded_to is not None, batch.special is not None, bool(batch.examples))


def _padded_length(model: nn.Module, batch: Batch) -> int | None:
    """The length that texts are padded to, if they are."""
    ids = batch.tensors["input_ids"]
    known = _OF.get(model)
    if not batch.tensors.keys() <= PADDED or any(tensor.dim() != 2 for tensor in batch.tensors.values()):
        return None
    if (known is not None and known.length_matters) or not accepts(model, "attention_mask"):
        return None
    if getattr(text_config(model), "pad_token_id", None) is None:
        return None
    units = ids.shape[1]
    longest = min(longest_for(model), LENGTHS[-1])
    return None if units > longest else next((min(length, longest) for length in LENGTHS if length >= units), None)


def lay_out(model: nn.Module, batch: Batch, layout: BatchLayout, needs: Needs) -> LaidOut:
    """A batch as the captured run of its layout takes it."""
    device, given = device_of(model), batch.tensors
    units = 0 if "input_ids" not in given else given["input_ids"].shape[1]
    tensors: dict[str, Tensor] = {}
    kept: tuple[int, ...] | None = None
    for name, shape, dtype in layout.sizes:
        if name == KEEP:
            kept = last_positions(given)
            tensors[name] = torch.tensor([*kept, *[kept[-1]] * (shape[0] - len(kept))], device=device)
        elif name in given:
            tensors[name] = _lengthened(given[name].to(device), shape, model if name == "input_ids" else None)
        else:  # of texts that are padded, which have a mask then
            tensors[name] = _lengthened(torch.ones(shape[0], units, dtype=dtype, device=device), shape)
    special = batch.special
    if special is not None:
        shape = tensors["input_ids"].shape if layout.padded else special.shape
        special = _lengthened(special.to(device), shape)
    return LaidOut(tensors, special, units if layout.padded else None, kept)


def _lengthened(tensor: Tensor, shape: Sequence[int], of: nn.Module | None = None) -> Tensor:
    """A tensor [batch, units] with so many units, zeros or padding tokens `of` a model; or any that has its shape."""
    if tensor.shape == shape:
        return tensor
    token = 0 if of is None else getattr(text_config(of), "pad_token_id", None) or 0
    return F.pad(tensor, (0, shape[1] - tensor.shape[1]), value=token)


def limit_of(device: torch.device) -> float:
    """Bytes that captures may hold on a device."""
    return SHARE * torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else float("inf")


def make_room(device: torch.device) -> None:
    """Let go of the captures that were used longest ago, until the others hold no more memory than they may."""
    limit = limit_of(device)
    while sum(captures.memory for captures in _OF.values()) > limit:
        of = [(run.used, captures, key) for captures in _OF.values() for key, run in captures.runs.items()]
        _, captures, key = min(of, key=lambda each: each[0])
        captures.runs.pop(key).graphs.wait()
        captures.seen.clear()  # whatever comes again is captured later
