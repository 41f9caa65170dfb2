"""The rows of a recipe with a column's head mask and LM head in them."""

from collections.abc import Mapping
from dataclasses import replace

from whyformer.errors import BadInput
from whyformer.methods.head_mask import HeadMask
from whyformer.methods.method import method_specs
from whyformer_papers.reproduce.lm_heads import ColumnHead
from whyformer_papers.reproduce.masks import ColumnMask, is_parsed
from whyformer_papers.reproduce.recipe import RecipeColumn, RecipeMetric, RecipeRow, Reproduction

POSITIONAL_ONLY = "positional heads only"


def filled(
    recipe: Reproduction,
    column: RecipeColumn,
    mask: ColumnMask | str | None = None,
    head: ColumnHead | str | None = None,
) -> tuple[Reproduction, list[str]]:
    """The recipe of one column, with the file of its head mask, the share of heads, and its LM head in its rows.

    In place of a mask or head, a text says why there is none; the rows that need it then wait for that, as does a row
    for which the mask has no heads, or the model no such layer. Beside the recipe there is a sentence for each such
    reason. Where no row is left, or an essential one is missing, `BadInput` says why.
    """
    known = recipe.waiting
    rows = tuple(row if row.label in known else _filled(row, mask, head) for row in recipe.rows)
    names = {row.label: column_row.label for row, column_row in zip(recipe.rows, rows, strict=True)}
    essential = tuple(names[label] for label in recipe.essential)
    column_recipe = replace(recipe, rows=rows, essential=essential, measures=_measures(recipe, column))
    waiting = column_recipe.waiting
    labels = [row.label for row in column_recipe.rows_in(column) if row.label in waiting and row.label not in known]
    needed = [label for label in labels if label in column_recipe.essential]
    if labels and (needed or not column_recipe.rows_of(column)):
        raise BadInput("; ".join(f"{label}: {waiting[label]}" for label in needed or labels))
    by_reason: dict[str, list[str]] = {}
    for label in labels:
        by_reason.setdefault(waiting[label], []).append(label)
    return column_recipe, [
        f"{', '.join(together)} {'is' if len(together) == 1 else 'are'} left out: {reason}"
        for reason, together in by_reason.items()
    ]


def _measures(recipe: Reproduction, column: RecipeColumn) -> tuple[RecipeMetric, ...]:
    """The measures of a column: some have another metric on pairs of texts."""
    if not column.of_pairs:
        return recipe.measures
    return tuple(replace(measure, metric=measure.pairs or measure.metric) for measure in recipe.measures)


def _filled(row: RecipeRow, mask: ColumnMask | str | None, head: ColumnHead | str | None) -> RecipeRow:
    if row.masked and mask is not None:
        row = _with_mask(row, mask)
    return _with_head(row, head) if row.decoded and head is not None else row


def _with_mask(row: RecipeRow, mask: ColumnMask | str) -> RecipeRow:
    if isinstance(mask, str):
        return replace(row, waits_for=mask)
    if reason := _lack(row, mask.mask):
        return replace(row, waits_for=reason)
    if row.syntactic and mask.mask.statistics is not None and not is_parsed(mask.mask):
        row = replace(row, label=f"{row.label}, {POSITIONAL_ONLY}")  # so no published number stands beside it
    return _written(row, {"{heads}": str(mask.path), "{rate}": f"{mask.mask.rate:.6g}"})


def _with_head(row: RecipeRow, head: ColumnHead | str) -> RecipeRow:
    if isinstance(head, str):
        return replace(row, waits_for=head)
    if any(spec.options.get("layer", 0) > head.layers for spec in method_specs(row.readings)):
        return replace(row, waits_for=f"the model has {head.layers} layers")
    option = "lm_head={lm_head}"
    return _written(row, {f", {option}": "", option: ""} if head.source is None else {"{lm_head}": head.source})


def _written(row: RecipeRow, instead: Mapping[str, str]) -> RecipeRow:
    """The row with other text in its methods."""
    methods = [row.method, *row.also]
    for old, new in instead.items():
        methods = [method.replace(old, new) for method in methods]
    return replace(row, method=methods[0], also=tuple(methods[1:]))


def _lack(row: RecipeRow, mask: HeadMask) -> str | None:
    """What a row needs and the mask does not have."""
    if not mask.kept.any():
        return "the head mask keeps no head"
    asked = (spec.options.get("only") for spec in method_specs(row.readings))
    for kind in dict.fromkeys(kind for kind in asked if kind is not None):
        if mask.statistics is None:
            return f"the head mask does not tell which of its heads are {kind}"
        kinds = {name: getattr(mask, name) & mask.kept for name in ("positional", "syntactic")}
        if (mask.kept & ~kinds["positional"] & ~kinds["syntactic"]).any():
            return f"the head mask keeps heads of no kind, and so no {kind} ones alone"
        if not kinds[kind].any():
            unparsed = kind == "syntactic" and not is_parsed(mask)
            parse = ": there was no parse (--treebank FILE or --spacy NAME)"
            return f"the head mask keeps no {kind} head" + (parse if unparsed else "")
    return None
