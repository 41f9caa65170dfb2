"""The explained output of one example as a plain function: of which of its units are there."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whyformer.errors import BadInput, BadOption, UnsupportedModel
from whyformer.inputs.encoding import Batch
from whyformer.models.borrow import borrowed
from whyformer.models.loading import input_embeddings, text_config, unwrapped, vocabulary_size
from whyformer.perturb.hiding import is_known
from whyformer.perturb.outcomes import TOKENS_PER_BATCH, fits_in_memory
from whyformer.prediction import Prediction
from whyformer.recorder.embeddings import TokenEmbeddings

Baseline = Literal["pad", "mask", "unk", "zero"]

WORDS = {"pad": "padding", "mask": "mask", "unk": "unknown"}
UNSEEN = "the embeddings of single tokens were not seen, and tokens give way there"
WITH_GRADIENTS = 4  # a run that keeps a graph takes this many times the memory
LEEWAY = {torch.float64: 1e-8, torch.float32: 1e-4}  # between two runs of one text, as a share of its largest logit
ROUGH = 0.05  # in half precision, or where matrices are multiplied with less than float32
LOGITS_PER_BATCH = {"cpu": 2**26, "cuda": 2**28}  # of models that give a vocabulary at every position


def stand_in(prediction: Prediction, baseline: Baseline) -> int | None:
    """The token that takes the place of a unit; None where zeros do: in the embedding, or in a patch of an image."""
    tensors = prediction.batch.tensors
    if baseline == "zero" or (baseline == "pad" and "pixel_values" in tensors):  # an image is padded with zeros
        return None
    what = f"baseline={baseline!r} is not possible"
    if "input_ids" not in tensors:
        raise BadOption(f"{what}: the input has no tokens, it is given as {', '.join(tensors)}; use baseline='zero'")
    config, tokenizer = text_config(prediction.model), prediction.batch.tokenizer
    owners = (config, tokenizer) if baseline == "pad" or tokenizer is None else (tokenizer,)
    found = (getattr(owner, f"{baseline}_token_id", None) for owner in owners)
    tokens = [int(token) for token in found if isinstance(token, int)]
    size = vocabulary_size(prediction.model)
    token = next((token for token in tokens if is_known(token, size)), None)
    if token is not None:
        return token
    if tokens:
        raise BadOption(
            f"{what}: the {WORDS[baseline]} token {tokens[0]} lies beyond the model's vocabulary of {size}; use "
            "baseline='zero'"
        )
    if tokenizer is None:
        raise BadOption(
            f"{what}: the configuration of {type(prediction.model).__name__} names no {WORDS[baseline]} token; use "
            "baseline='zero', or explain texts with an Explainer, which knows the tokenizer's"
        )
    raise BadOption(f"{what}: the tokenizer has no {WORDS[baseline]} token; use baseline='zero'")


class Explained:
    """One example of a prediction, alone and without padding, and what the model says of it when units give way.

    `positions` says where its units stand in the batch; what a causal model cannot see from where it speaks is left
    out. `free` marks the units that may give way, to the token `instead`, or to zeros where that is None: all but
    special tokens. It is the embedding that is exchanged: the model is told the same token ids, so neither positions
    nor what the head reads move. `evaluations` counts the copies that were run; each different one is run once.
    """

    def __init__(self, prediction: Prediction, row: int, instead: int | None):
        self.model: nn.Module = unwrapped(prediction.model)
        self.task, self.says = prediction.trace.outputs.task, prediction.task
        self.positions = _positions(prediction, row)
        self.tensors = _alone(prediction, row, self.positions)
        self.units = len(self.positions)
        self.patches = _patches(prediction) if "pixel_values" in self.tensors else None
        self.free = _free(prediction, row, self.positions, self.patches)
        self.instead = instead
        self.target = _moved(prediction, prediction.target[row : row + 1], self.positions)
        versus = prediction.versus
        self.versus = None if versus is None else _moved(prediction, versus[row : row + 1], self.positions)
        self.dtype = torch.promote_types(prediction.trace.logits.dtype, torch.float32)
        self.device = prediction.trace.logits.device
        self.vocabulary = prediction.trace.logits.shape[-1] if self.task == "token" else 0
        self.evaluations = 0
        self.told: Callable[[], None] | None = None  # called after every batch
        self._known: dict[bytes, Tensor] = {}
        if self.positions.tolist() != list(range(self.units)):
            self._keep_places(prediction, row)

    def _keep_places(self, prediction: Prediction, row: int) -> None:
        """Units that stood behind padding are told their old positions where these matter; raise if that is not all."""
        logits = prediction.trace.logits[row].detach()
        exact = logits.dtype == torch.float64 or torch.get_float32_matmul_precision() == "highest"
        leeway = LEEWAY.get(logits.dtype, ROUGH) if exact else ROUGH
        due = float(prediction.trace.output(prediction.target, prediction.versus)[row].detach())
        whole, within = torch.ones(1, self.units), leeway * float(logits.abs().max())
        found = float(self.outputs(whole))
        if abs(found - due) > within and "position_ids" in self._takes and "position_ids" not in self.tensors:
            self.tensors["position_ids"] = self.positions[None].to(self.device)
            self._known.clear()
            found = float(self.outputs(whole))
        if abs(found - due) > within:
            raise BadInput(
                f"this method runs a text without its padding, and {type(self.model).__name__} then says {found:.6g} "
                f"instead of {due:.6g}: padding stands before or inside the text; pad on the right, or give texts one "
                "by one"
            )

    def seed(self, seed: int) -> int:
        """The seed of this example's own random stream: it depends on `seed` and on its tokens alone."""
        alone = Prediction(self.model, Batch(self.tensors, None, None))
        alone.padding = torch.zeros(1, self.units, dtype=torch.bool)
        return alone.generators(seed)[0].initial_seed()

    def at_once(self, *, gradients: bool = False, whole_vocabulary: bool = False) -> int:
        """How many copies are run together."""
        kind = self.device.type if self.device.type in TOKENS_PER_BATCH else "cpu"
        fitting = TOKENS_PER_BATCH[kind] // (WITH_GRADIENTS if gradients else 1) // self.units
        if self.vocabulary and whole_vocabulary:
            fitting = min(fitting, LOGITS_PER_BATCH[kind] // (self.units * self.vocabulary))
        nameless = "input_ids" not in self.tensors and getattr(text_config(self.model), "pad_token_id", 0) is None
        return 1 if nameless and "inputs_embeds" in self.tensors else max(1, fitting)  # GPT-2 asks for padding's name

    def outputs(self, present: Tensor) -> Tensor:
        """The explained output, [copies], for copies with these units there, [copies, units] of zeros and ones."""
        rows = (present.cpu() > 0.5) | ~self.free
        keys = [row.tobytes() for row in rows.numpy()]
        new = {key: n for n, key in enumerate(keys) if key not in self._known}
        fitting = self.at_once(whole_vocabulary=self._kept is None)
        for part in np.array_split(list(new.values()), -(-len(new) // fitting) or 1):
            self._answer(rows[torch.from_numpy(part).long()])
        return torch.stack([self._known[key] for key in keys])

    def of_free(self, present: Tensor) -> Tensor:
        """The same for copies with these of the free units there, [copies, free]."""
        rows = torch.ones(len(present), self.units)
        rows[:, self.free] = present.cpu().float()
        return self.outputs(rows)

    def copies(self, count: int) -> dict[str, Tensor]:
        """What the model is given for the example, so many times."""
        return {n: t.repeat(count, *(1 for _ in t.shape[1:])) if t.dim() else t for n, t in self.tensors.items()}

    def replaced(self, present: Tensor) -> dict[str, Tensor]:
        """What the model is given for copies with these units there; tokens give way in it: see `exchanging`."""
        given = self.copies(len(present))
        if self.patches is not None:
            given["pixel_values"] = given["pixel_values"] * self._blank(present, given["pixel_values"])
        elif "input_ids" not in given:
            given["inputs_embeds"] = given["inputs_embeds"] * present[:, :, None]
        return given

    def exchanging(self, present: Tensor, ids: Tensor | None) -> AbstractContextManager[Any]:
        """In it, the model looks up the stand-in's embedding, or zeros, for those tokens `ids` that are not there."""
        if ids is None or self.patches is not None:
            return nullcontext()
        return _Exchanging(self.model, ids, present, self.instead)

    def _blank(self, present: Tensor, pixels: Tensor) -> Tensor:
        """1 where a pixel's patch is there, [copies, 1, height, width]; pixels of no patch are always there."""
        assert self.patches is not None
        rows, columns, height, width = self.patches
        grid = present[:, -rows * columns :].view(-1, 1, rows, columns)
        there = grid.repeat_interleave(height, 2).repeat_interleave(width, 3).to(pixels.dtype)
        rest = (0, pixels.shape[3] - columns * width, 0, pixels.shape[2] - rows * height)
        return F.pad(there, rest, value=1.0)

    def _answer(self, rows: Tensor) -> None:
        """Run a batch of copies; where memory does not suffice, in halves."""
        if not len(rows):
            return

        def run() -> None:
            said = self._said(rows.to(self.device)).cpu()
            self._known.update(zip((row.tobytes() for row in rows.numpy()), said, strict=True))

        if not fits_in_memory(run, len(rows)):
            self._answer(rows[: len(rows) // 2])
            self._answer(rows[len(rows) // 2 :])
            return
        self.evaluations += len(rows)
        if self.told is not None:
            self.told()

    def _said(self, present: Tensor) -> Tensor:
        """Run the plain model, without a graph."""
        kept = {} if self._kept is None else {"logits_to_keep": torch.tensor([self._kept], device=self.device)}
        with (
            torch.no_grad(),
            borrowed(self.model, self.replaced(present), **kept) as (model, arguments),
            self.exchanging(present, arguments.get("input_ids")),
        ):
            output = model(**self.says.arguments(arguments))
        said = self._picked(output)
        if not bool(torch.isfinite(said).all()):
            raise UnsupportedModel(
                f"{type(self.model).__name__} returns logits that are not numbers once units give way"
            )
        return said.to(self.dtype)

    @cached_property
    def _takes(self) -> frozenset[str]:
        """The names of what the model's forward takes."""
        return frozenset(inspect.signature(self.model.forward).parameters)

    @cached_property
    def _kept(self) -> int | None:
        """The one position at which a model with a vocabulary at every position has to speak, if it can be told."""
        said = [t for t in (self.target, self.versus) if t is not None]
        places = {int(t[0, 1]) for t in said} if self.task == "token" else set()
        return places.pop() if len(places) == 1 and "logits_to_keep" in self._takes else None

    def _picked(self, output: Any) -> Tensor:
        """The explained output, [copies], as `Trace.output` picks it."""
        logits = output.logits if self.task != "answer" else torch.stack((output.start_logits, output.end_logits), 1)
        signs = [(1, self.target), *([] if self.versus is None else [(-1, self.versus)])]
        found = []
        for sign, target in signs:
            numbers = target[0].tolist() if target.dim() > 1 else [int(target[0])]
            if self.task == "classes":
                found.append(sign * logits[:, numbers[0]])
            elif self.task == "token":
                found.append(sign * logits[:, numbers[1] if logits.shape[1] == self.units else 0, numbers[0]])
            else:
                found += [sign * logits[:, part, place] for part, place in enumerate(numbers) if place >= 0]
        return torch.stack(found).sum(0)


class _Exchanging(TorchFunctionMode):
    """In it, a model looks up another token's embedding, or zeros, for tokens that are not there."""

    def __init__(self, model: nn.Module, ids: Tensor, present: Tensor, instead: int | None):
        super().__init__()
        weight = getattr(input_embeddings(model), "weight", None)
        self.present, self.instead = present, instead
        self.tokens = TokenEmbeddings(weight, ids, self._exchanged)

    def _exchanged(self, values: Tensor) -> Tensor:
        if values.shape[:2] != self.present.shape:
            raise BadOption(f"{UNSEEN}: they are looked up in the shape {tuple(values.shape)}")
        weight = self.tokens.weight
        other = torch.zeros_like(values[0, 0]) if self.instead is None or weight is None else weight[self.instead]
        return torch.where(self.present[:, :, None], values, other.to(values))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        if kind is None and self.tokens.leaf is None:
            raise BadOption(f"{UNSEEN}: they were not looked up")

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is not F.embedding:
            return result
        named = dict(zip(("input", "weight"), args, strict=False)) | (kwargs or {})
        return self.tokens.looked_up(named["weight"], named["input"], result)


def examples_of(prediction: Prediction, baseline: Baseline) -> Iterator[Explained]:
    """The examples of a prediction, one after the other."""
    instead = stand_in(prediction, baseline)
    return (Explained(prediction, row, instead) for row in range(len(prediction.padding)))


def _said_at(prediction: Prediction, target: Tensor | None) -> list[int]:
    """The positions that a target [1, 2] speaks of; none for a class."""
    task = prediction.trace.outputs.task
    if target is None or task == "classes":
        return []
    return [int(place) for place in target[0, 0 if task == "answer" else 1 :] if place >= 0]


def _positions(prediction: Prediction, row: int) -> Tensor:
    """The positions of an example that are no padding, up to where a causal model speaks."""
    real = (~prediction.padding[row]).nonzero().flatten().cpu()
    targets = [None if t is None else t[row : row + 1] for t in (prediction.target, prediction.versus)]
    said = [place for target in targets for place in _said_at(prediction, target)]
    later = real[real > max(said)] if said else real[:0]
    if not len(later) or prediction.trace.embeddings is None:
        return real
    unseen = not bool(prediction.embedding_gradients[row, later.to(prediction.padding.device)].any())
    return real[real <= max(said)] if unseen else real


def _alone(prediction: Prediction, row: int, positions: Tensor) -> dict[str, Tensor]:
    """What the model is given for one example, without its padding."""
    tensors, units = prediction.batch.tensors, prediction.padding.shape[1]
    found = {}
    for name, tensor in tensors.items():
        own = tensor[row : row + 1] if tensor.dim() else tensor
        by_unit = units in tensor.shape[1:] and not name.startswith(("decoder_", "pixel_values"))
        if by_unit and len(positions) < units:
            if "mask" in name and units in tensor.shape[2:]:  # others have a row for each token, by chance as wide
                raise BadInput(f"padding cannot be taken out of {name} {tuple(tensor.shape)}: give texts one by one")
            own = own[:, positions.to(own.device)]
        found[name] = own
    return found


def _moved(prediction: Prediction, target: Tensor, positions: Tensor) -> Tensor:
    """A target [1] or [1, 2], with its positions counted in the example alone."""
    moved, order = target.clone(), positions.tolist()
    first = 0 if prediction.trace.outputs.task == "answer" else 1
    for column in range(first, 2) if _said_at(prediction, target) else ():
        if moved[0, column] >= 0:
            moved[0, column] = order.index(int(moved[0, column]))
    return moved


def _free(prediction: Prediction, row: int, positions: Tensor, patches: tuple[int, int, int, int] | None) -> Tensor:
    """Which units may give way, [units]."""
    free = torch.ones(len(positions), dtype=torch.bool)
    if patches is not None:
        free[: len(free) - patches[0] * patches[1]] = False
    if prediction.batch.special is not None:
        free &= ~prediction.batch.special[row].cpu().bool()[positions]
    return free


def _patches(prediction: Prediction) -> tuple[int, int, int, int]:
    """Of an image: rows and columns of patches, which are its last units, and a patch's height and width."""
    size = getattr(getattr(prediction.model, "config", None), "patch_size", None)
    height, width = (size, size) if isinstance(size, int) else size if isinstance(size, (list, tuple)) else (0, 0)
    pixels, units = prediction.batch.tensors["pixel_values"].shape, prediction.padding.shape[1]
    rows, columns = (pixels[2] // height, pixels[3] // width) if height and width else (0, 0)
    if not 0 < rows * columns <= units:
        found = f"{units} units and patches of size {size}"
        raise UnsupportedModel(
            f"which pixels a unit of {type(prediction.model).__name__} stands for is not known: {found}"
        )
    return rows, columns, height, width
