"""The rows of a recipe with a column's head mask and LM head in them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from whyformer.attention_heads import HeadMask
from whyformer.errors import BadInput
from whyformer.methods.specs import method_specs
from whyformer.papers.lm_heads import ColumnHead
from whyformer.papers.masks import ColumnMask, is_parsed
from whyformer.papers.recipe import Column, Reproduction, Row


def filled(
    recipe: Reproduction,
    column: Column,
    mask: ColumnMask | str | None = None,
    head: ColumnHead | str | None = None,
) -> Reproduction:
    """The recipe of one column, with the file of its head mask, the share of heads, and its LM head in its rows.

    In place of a mask or head, a text says why there is none; the rows that need it then wait for that, as does a row
    for which the mask has no heads, or the model no such layer. Where no row is left, or an essential one is missing,
    `BadInput` says why.
    """
    waiting = recipe.waiting
    rows = tuple(row if row.label in waiting else _filled(row, mask, head) for row in recipe.rows)
    own = replace(recipe, rows=rows)
    lost = _reasons(recipe, own, column)
    needed = {label: reason for label, reason in lost.items() if label in recipe.essential}
    if lost and (needed or not own.rows_of(column)):
        raise BadInput("; ".join(f"{label}: {reason}" for label, reason in (needed or lost).items()))
    return own


def left_out_rows(recipe: Reproduction, own: Reproduction, column: Column) -> list[str]:
    """A sentence about the rows of a column that its head mask or LM head cannot serve, for each reason."""
    by_reason: dict[str, list[str]] = {}
    for label, reason in _reasons(recipe, own, column).items():
        by_reason.setdefault(reason, []).append(label)
    return [
        f"{', '.join(labels)} {'is' if len(labels) == 1 else 'are'} left out: {reason}"
        for reason, labels in by_reason.items()
    ]


def _reasons(recipe: Reproduction, own: Reproduction, column: Column) -> dict[str, str]:
    """Why rows cannot be run that the recipe itself does not let wait."""
    before, after = recipe.waiting, own.waiting
    return {
        row.label: after[row.label] for row in own.rows_in(column) if row.label in after and row.label not in before
    }


def _filled(row: Row, mask: ColumnMask | str | None, head: ColumnHead | str | None) -> Row:
    if row.masked and mask is not None:
        row = _with_mask(row, mask)
    return _with_head(row, head) if row.decoded and head is not None else row


def _with_mask(row: Row, found: ColumnMask | str) -> Row:
    reason = found if isinstance(found, str) else _lack(row, found.mask)
    if reason or isinstance(found, str):
        return replace(row, waits_for=reason)
    return _written(row, {"{heads}": str(found.path), "{rate}": f"{found.mask.rate:.6g}"})


def _with_head(row: Row, found: ColumnHead | str) -> Row:
    if isinstance(found, str):
        return replace(row, waits_for=found)
    if any(spec.options.get("layer", 0) > found.layers for spec in method_specs(row.readings)):
        return replace(row, waits_for=f"the model has {found.layers} layers")
    option = "lm_head={lm_head}"
    return _written(row, {f", {option}": "", option: ""} if found.source is None else {"{lm_head}": found.source})


def _written(row: Row, instead: Mapping[str, str]) -> Row:
    """The row with other text in its methods."""
    methods = [row.method, *row.also]
    for old, new in instead.items():
        methods = [method.replace(old, new) for method in methods]
    return replace(row, method=methods[0], also=tuple(methods[1:]))


def _lack(row: Row, mask: HeadMask) -> str | None:
    """What a row needs and the mask does not have."""
    if not mask.kept.any():
        return "the head mask keeps no head"
    for kind in _kinds(row):
        if mask.statistics is None:
            return f"the head mask does not tell which of its heads are {kind}"
        kinds = {name: getattr(mask, name) & mask.kept for name in ("positional", "syntactic")}
        if (mask.kept & ~kinds["positional"] & ~kinds["syntactic"]).any():
            return f"the head mask keeps heads of no kind, and so no {kind} ones alone"
        if not kinds[kind].any():
            unparsed = kind == "syntactic" and not is_parsed(mask)
            return f"the head mask keeps no {kind} head" + (": there was no parse (--spacy NAME)" if unparsed else "")
    return None


def _kinds(row: Row) -> Iterable[str]:
    """The kinds of heads that the row asks for by name."""
    asked = (spec.options.get("only") for spec in method_specs(row.readings))
    return dict.fromkeys(kind for kind in asked if kind is not None)
