"""Mask-LRP: relevance that flows through some attention heads alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from whyformer.errors import BadOption, UnsupportedModel
from whyformer.methods.attention import roll_out, with_residual
from whyformer.methods.default import shipped_file
from whyformer.methods.lrp import conservation, transformer_attribution
from whyformer.methods.method import Scores, method
from whyformer.prediction import Prediction
from whyformer.recorder import Needs
from whyformer.recorder.lrp.head_gate import HeadGate

if TYPE_CHECKING:
    from whyformer.methods.head_mask import HeadMask

MAKING = "make one with `whyformer heads --model … --treebank …`"
ONLY_KEPT = "this mask tells only which are kept: give a file made by `whyformer heads`, or numbers [2, layers, heads]"


@method(
    family="relevance",
    signed=False,
    class_specific=True,
    paper="Song et al. 2024",
    needs=Needs(sites=True, in_turn=True),
    single_output=True,
)
def mask_lrp(
    prediction: Prediction,
    *,
    head_mask: Literal["off", "random"] | Path | Tensor | None = None,
    variant: Literal["paper", "authors"] = "paper",
    rescale: Literal["joint", "separate"] = "joint",
    weights: Literal["binary", "sum"] = "binary",
    only: Literal["positional", "syntactic"] | None = None,
    rate: float | None = None,
    corrupted: float = 0.0,
    seed: int = 0,
) -> Scores:
    """Transformer attribution whose relevance flows through syntactic and positional heads alone.

    The relevance `R` that enters a block's `A · V` becomes `m ⊙ R · ΣR / Σ(m ⊙ R)`, sums per example; the score is
    `Π_l (I + E_h (G_l ⊙ R_l)⁺)`. A block with no kept head, or with `Σ(m ⊙ R) = 0`, contributes nothing.
    `rescale="separate"` is §4.3 to the letter: `sign(ΣR_k) · ΣR / |ΣR_synt + ΣR_pos|` for each kind of head.
    `only` keeps one kind of the mask's heads (their Table 3), `corrupted` switches on a share of its zeros (Figure 4).
    `variant="authors"` is their code: the mask acts on lower layers only, what is scored is neither masked nor halved
    (halved with `head_mask="off"`), nothing is rescaled, rows are normalised.
    """
    authors = variant == "authors"
    if authors and rescale == "separate":
        raise BadOption("variant='authors' rescales nothing: leave rescale='separate' out")
    if isinstance(head_mask, str) and head_mask == "off":  # a tensor is compared number by number
        return transformer_attribution(prediction, row_normalised=authors)  # type: ignore[return-value]
    kinds = _kinds(prediction, head_mask, only, rate, corrupted, seed)
    gate = HeadGate(_weighted(kinds, rescale, weights), rescaled=not authors)
    book = prediction.traced.gated("z_plus", gate)
    maps, relevances = prediction.weighted_relevances(book)
    if authors:
        pairs = zip(prediction.attention_gradients, gate.maps(prediction.attention), strict=True)
        maps = [(g * r).clamp(min=0).mean(1) for g, r in pairs]
    joined = with_residual(maps, row_normalised=authors)
    report = conservation(relevances, prediction, lost=gate.lost_above(0))
    return Scores(roll_out(prediction.reader, joined), {**report, "heads": gate.report})


def _weighted(kinds: Tensor, rescale: str, weights: str) -> Tensor:
    """What each head counts, [kinds, layers, heads]; one kind alone where they are rescaled together.

    As "binary", a head of several kinds counts once, as one of the first.
    """
    if len(kinds) == 1 and (rescale == "separate" or weights == "sum"):
        asked = "rescale='separate'" if rescale == "separate" else "weights='sum'"
        raise BadOption(f"{asked} needs to know which heads are syntactic and which positional, and {ONLY_KEPT}")
    if weights == "binary":
        kinds = kinds & (kinds.cumsum(0) == 1)
    return kinds.double() if rescale == "separate" else kinds.double().sum(0, keepdim=True)


def _kinds(
    prediction: Prediction,
    head_mask: str | Path | Tensor | None,
    only: str | None,
    rate: float | None,
    corrupted: float,
    seed: int,
) -> Tensor:
    """Which heads are kept, by kind, [kinds, layers, heads] booleans; one kind where the kinds are not known."""
    from whyformer.methods.head_mask import HeadMask

    maps = prediction.trace.attention
    layers, counts = len(maps), sorted({m.shape[1] for m in maps})
    if len(counts) > 1:
        raise UnsupportedModel(f"the layers have different numbers of heads ({counts}), so no head mask fits them")
    if rate is not None and (not isinstance(head_mask, str) or head_mask != "random" or not 0 < rate <= 1):
        raise BadOption(f"rate is the share of heads, above 0 and up to 1, that head_mask='random' keeps; found {rate}")
    if rate is not None:
        kept = torch.arange(layers * counts[0]) < round(rate * layers * counts[0])
        kinds = _by_kind(HeadMask(kept.view(layers, -1).numpy()).random(seed))
    elif head_mask is None or isinstance(head_mask, str | Path):
        kinds = _by_kind(_stored(prediction, head_mask, seed))
    else:
        kinds = _of_numbers(head_mask)
    if tuple(kinds.shape[1:]) != (layers, counts[0]):
        raise BadOption(
            f"this head mask is for {kinds.shape[1]} layers of {kinds.shape[2]} heads, and the model has {layers} of "
            f"{counts[0]}: {MAKING} of this model"
        )
    kinds = kinds if only is None else _of_one_kind(kinds, only)
    return _by_kind(HeadMask(kinds.any(0).numpy()).corrupted(corrupted, seed)) if corrupted else kinds


def _of_one_kind(kinds: Tensor, only: str) -> Tensor:
    if len(kinds) == 1:
        raise BadOption(f"only={only!r} needs a mask that tells syntactic from positional heads, and {ONLY_KEPT}")
    kept = kinds[[("syntactic", "positional").index(only)]]
    if not bool(kept.any()):
        raise BadOption(f"only={only!r} leaves no head: this mask has no {only} ones")
    return kept


def _by_kind(mask: "HeadMask") -> Tensor:
    """Its syntactic and its positional heads, if these are all that it keeps; otherwise what it keeps."""
    kept = torch.tensor(mask.kept)[None]
    if mask.statistics is None:
        return kept
    kinds = torch.stack((torch.tensor(mask.syntactic), torch.tensor(mask.positional))) & kept
    return kinds if torch.equal(kinds.any(0), kept[0]) else kept


def _stored(prediction: Prediction, head_mask: str | Path | None, seed: int) -> "HeadMask":
    """The mask of a file, or the one shipped with a bundled model, or a random one that keeps as many heads as that."""
    from whyformer.methods.head_mask import HeadMask

    if head_mask not in (None, "random"):
        return HeadMask.load(str(head_mask))
    if shipped := shipped_file(prediction.model, "heads.json"):
        mask = HeadMask.load(shipped)
        return mask if head_mask is None else mask.random(seed)
    if head_mask == "random":
        raise BadOption(
            "head_mask='random' keeps as many heads as the model's own mask, and this model comes with none: say which "
            "share of them to keep, as rate=0.3"
        )
    raise BadOption(
        f"mask_lrp needs a head mask, and this model comes with none: {MAKING}, and give it as head_mask=heads.json"
    )


def _of_numbers(numbers: Tensor) -> Tensor:
    """The mask that was given as [layers, heads], or by kind as [2, layers, heads]."""
    try:
        mask = torch.as_tensor(numbers)
    except (TypeError, ValueError) as error:
        raise BadOption("head_mask has rows of different lengths; needed is [layers, heads]") from error
    if mask.dim() not in (2, 3):
        shape = tuple(mask.shape)
        raise BadOption(f"head_mask has the shape {shape}; needed is [layers, heads], or [2, layers, heads] by kind")
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise BadOption("head_mask holds other numbers than 0 and 1; needed is 1 for each head that is kept")
    return mask.bool() if mask.dim() == 3 else mask.bool()[None]
