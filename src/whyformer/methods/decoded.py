"""Decoded layer saliency: what a layer's hidden states say of the text's own tokens, by an LM head."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from whyformer.errors import BadInput, BadOption
from whyformer.lm_heads.fitting import head_for
from whyformer.lm_heads.head import LmHead
from whyformer.methods.attention import at_layer
from whyformer.methods.places import check_cancelled
from whyformer.methods.registry import PerExample, Scores, method
from whyformer.methods.shipped import shipped_layer
from whyformer.prediction import Prediction

Score = Literal["grad_cam", "saliency", "attcat", "att_grads", "raw_attention"]
OF_ATTENTION = ("attcat", "att_grads", "raw_attention")  # layer 0, the embedding output, has none of these


@method(family="decoded", signed=False, class_specific=True, paper="Hou & Castañón 2023", single_output=True)
def decoded_grad_cam(
    prediction: Prediction,
    *,
    layer: int | Literal["best"] | None = None,
    layers: Literal["all"] | None = None,
    score: Score = "grad_cam",
    top: int | None = None,
    lm_head: str | Path | None = None,
    decode: bool = True,
    special_positions: bool = True,
    matrix: bool = False,
    vocabulary: int = 0,
) -> Scores:
    """Grad-CAM of one layer's hidden states, given to the tokens that an LM head reads in them.

    `α_j = (Σ_d ∂y/∂h_l ⊙ h_l)_j⁺`; `P = softmax(LMhead(h_l))`; a distinct token `t` of the text scores
    `s_t = Σ_j P[j, t] α_j`, and so does each of its positions. Special tokens score 0. Hidden states are counted from
    the embedding output, 0, to the last layer's output. The default is the layer that a bundled model is shipped with,
    else the middle one, `L // 2`; `"best"` is the one that `recommend` recorded. `layers="all"` gives every layer, and
    their sum is the explanation. `top`: in each position only so many tokens count. `decode=False` leaves `α` as it
    is; at `layer=0` that is the paper's vanilla Grad-CAM.
    `matrix` and `vocabulary=k` report `D[t, j] = P[j, t]` and each position's `k` most likely tokens.
    """
    decoding = {"top": top, "lm_head": lm_head, "matrix": matrix, "vocabulary": vocabulary}
    if not decode and (asked := [name for name, value in decoding.items() if value is not None and value != 0]):
        raise BadOption(f"decode=False decodes nothing: leave {asked[0]} out")
    _check(prediction, layer, layers, decoding)
    chosen = list(range(len(prediction.hidden))) if layers else [_number(prediction, layer)]
    if not decode and score in ("grad_cam", "attcat"):  # what is decoded of the position that is read is a signal
        _check_cancelled(prediction, chosen)
    counted = _counted(prediction, special_positions)
    weights = [_layer_score(prediction, n, score, alone=not layers) * counted for n in chosen]
    report: dict[str, Any] = {"layer": chosen if layers else chosen[0]}
    if not decode:
        return Scores(_stacked(weights, layers, 0), {"decoded": report})
    with torch.no_grad():
        rows, source = Rows.of(prediction), None if lm_head is None else str(lm_head)
        head = head_for(prediction.model, source, prediction.hidden[0], prediction.batch.tokenizer)
        read = [_read(head, prediction.hidden[n], rows, vocabulary) for n in chosen]
        shares = [_largest(layer_read.shares, top) for layer_read in read]
        scores = [rows.at_positions(torch.einsum("btn,bn->bt", d, a)) for d, a in zip(shares, weights, strict=True)]
    if matrix:
        report |= {"tokens": rows.distinct, "D": rows.matrices(_stacked(shares, layers, 1))}
    if vocabulary:
        report["vocabulary"] = rows.at_real(_stacked([layer_read.likely for layer_read in read], layers, 1))
        report["probabilities"] = rows.at_real(_stacked([layer_read.probabilities for layer_read in read], layers, 1))
    return Scores(_stacked(scores, layers, 0), {"decoded": report})


@dataclass(frozen=True)
class Rows:
    """The distinct tokens of each text: the rows of `D`."""

    tokens: Tensor  # [batch, tokens]; -1 where a text has fewer
    of_position: Tensor  # [batch, units]: the row of each position's token, -1 for special tokens and padding
    real: Tensor  # [batch, units]: no padding

    @classmethod
    def of(cls, prediction: Prediction) -> "Rows":
        """The rows of a batch; special tokens have none."""
        ids, special = prediction.batch.tensors.get("input_ids"), prediction.batch.special
        if ids is None:
            raise BadInput("an LM head knows tokens, and this input has no input_ids: use decode=False")
        real = ~prediction.padding
        with_row = real if special is None else real & ~special
        of_position, tokens = torch.full_like(ids, -1), []
        for example, held in enumerate(with_row):
            distinct, of_position[example, held] = ids[example, held].unique(return_inverse=True)
            tokens.append(distinct)
        return cls(torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=-1), of_position, real)

    def at_positions(self, scores: Tensor) -> Tensor:
        """The scores [batch, tokens] of the positions' tokens, [batch, units]; 0 where a position has none."""
        if not scores.shape[1]:
            return scores.new_zeros(self.of_position.shape)
        return scores.gather(1, self.of_position.clamp(min=0)).masked_fill(self.of_position < 0, 0)

    @property
    def distinct(self) -> PerExample:
        """The tokens of each text."""
        return PerExample(tokens[tokens >= 0] for tokens in self.tokens)

    def matrices(self, of_batch: Tensor) -> PerExample:
        """The matrix of each text from [batch, …, tokens, units], without the rows and positions of longer texts."""
        texts = zip(of_batch, self.distinct, self.real.to(of_batch.device), strict=True)
        return PerExample(matrix[..., : len(tokens), :][..., real] for matrix, tokens, real in texts)

    def at_real(self, numbers: Tensor) -> PerExample:
        """The numbers [batch, …, units, count] at the positions of each text."""
        return PerExample(n[..., real, :] for n, real in zip(numbers, self.real.to(numbers.device), strict=True))


@dataclass(frozen=True)
class Read:
    """What an LM head reads in one layer."""

    shares: Tensor  # D, [batch, tokens, units]: how likely each token is in each position
    likely: Tensor | None  # the most likely tokens of the vocabulary, [batch, units, count]; -1 in padding
    probabilities: Tensor | None


def _read(head: LmHead, hidden: Tensor, rows: Rows, count: int) -> Read:
    states = head.states(hidden)  # [batch, units, width]
    real = rows.real.to(states.device)
    states_of_real = states[real]
    normaliser = head.log_normaliser(states_of_real)
    everywhere = states.new_zeros(real.shape).masked_scatter(real, normaliser)
    logits = head.of_tokens(states, rows.tokens.clamp(min=0).to(states.device))
    outside = ~real[:, None] | (rows.tokens < 0).to(states.device)[..., None]
    shares = (logits - everywhere[:, None]).exp().masked_fill(outside, 0).to(hidden.device)
    if not count:
        return Read(shares, None, None)
    tokens, values = head.most_likely(states_of_real, min(count, head.vocabulary))
    likely = tokens.new_full((*real.shape, tokens.shape[1]), -1)
    likely[real] = tokens
    probabilities = values.new_zeros(likely.shape)
    probabilities[real] = (values - normaliser[:, None]).exp()
    return Read(shares, likely.to(hidden.device), probabilities.to(hidden.device))


def _largest(shares: Tensor, top: int | None) -> Tensor:
    """In each position the largest ones alone."""
    if top is None or top >= shares.shape[1]:
        return shares
    largest = shares.topk(top, 1)
    return torch.zeros_like(shares).scatter(1, largest.indices, largest.values)


def _layer_score(prediction: Prediction, layer: int, score: Score, *, alone: bool) -> Tensor:
    """How much each position of one layer matters, [batch, units], none below 0."""
    if score == "saliency":
        return prediction.hidden_gradients[layer].square().sum(-1).sqrt()
    if score in OF_ATTENTION and layer == 0:
        if alone:
            raise BadOption(
                f"score={score!r} weighs attention, and layer 0 is the embedding output: take layer 1 or up"
            )
        return torch.zeros_like(prediction.real)
    if score == "raw_attention":
        return prediction.read(prediction.attention[layer - 1].mean(1))
    if score == "att_grads":
        maps = prediction.attention[layer - 1] * prediction.attention_gradients[layer - 1].clamp(min=0)
        return torch.einsum("bq,bqk->bk", prediction.real, maps.mean(1))
    weights = (prediction.hidden[layer] * prediction.hidden_gradients[layer]).sum(-1)
    if score == "attcat":
        weights = weights * prediction.over_queries(prediction.attention[layer - 1].mean(1), "mean")
    return weights.clamp(min=0)


def _check_cancelled(prediction: Prediction, layers: Sequence[int]) -> None:
    products = torch.stack([prediction.hidden[n] * prediction.hidden_gradients[n] for n in layers])
    advice = "take a lower layer (--layer), or score='saliency' (--score saliency)"
    check_cancelled(prediction, products.sum((0, -1)), products.abs().sum((0, -1)), advice)


def _counted(prediction: Prediction, special_positions: bool) -> Tensor:
    """1 where a position counts, [batch, units]."""
    if special_positions:
        return prediction.real
    if prediction.batch.special is None:
        raise BadOption(
            "special_positions=False leaves special tokens out, and nobody said which these are: put the tokenizer's "
            "special_tokens_mask among the inputs"
        )
    return prediction.real * ~prediction.batch.special


def _number(prediction: Prediction, layer: int | str | None) -> int:
    """The hidden state that is meant, counted from the embedding output."""
    count = len(prediction.hidden)
    if layer is None:
        shipped = shipped_layer(prediction.model)
        return (count - 1) // 2 if shipped is None else shipped
    if isinstance(layer, str):
        raise BadOption(
            "layer='best' is replaced by a number before a method is called, by Explainer and attribute: give a number "
            "here"
        )
    at_layer(prediction.hidden, layer)
    return layer % count


def _check(prediction: Prediction, layer: int | str | None, layers: str | None, decoding: Mapping[str, Any]) -> None:
    """Raise where options contradict each other."""
    if layers and layer is not None:
        raise BadOption(f"layers='all' takes every layer: leave layer={layer!r} out")
    top, vocabulary = decoding["top"], decoding["vocabulary"]
    if top is not None and top < 1:
        raise BadOption(f"top is how many tokens count in each position, at least 1; found {top}")
    if vocabulary < 0:
        raise BadOption(f"vocabulary is how many tokens are told for each position; found {vocabulary}")
    if (decoding["matrix"] or vocabulary) and prediction.task.in_parts:
        raise BadOption(
            "matrix and vocabulary are told for one output, and the start and the end of an answer are explained one "
            "after the other: leave them out"
        )


def _stacked(tensors: list[Any], layers: str | None, dim: int) -> Tensor:
    """Of one layer its tensor, of all of them a stack."""
    return torch.stack(tensors, dim) if layers else tensors[0]
