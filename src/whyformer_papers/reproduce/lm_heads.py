"""The LM head of a column: one that was given, the model's own, or that of the paper's pretrained model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whyformer.errors import BadOption, WhyformerError
from whyformer.inputs.batch import collate, encode
from whyformer.methods.logit_lens import head_for, load_head, own_head
from whyformer.models.load import Subject
from whyformer.prediction import Prediction
from whyformer_papers.reproduce.recipe import RecipeColumn, Reproduction
from whyformer_papers.reproduce.sources import Given, Opened, ReproductionSettings, check_columns

TRIED = "a text"  # that tells how many hidden states a model has, and how wide they are


@dataclass(frozen=True)
class ColumnHead:
    """The LM head of a column as the option `lm_head`, None for the model's own; how many layers there are to decode.

    `sentence` says which head it is.
    """

    source: str | None
    layers: int
    sentence: str


def lm_heads_of_columns(recipe: Reproduction, columns: Sequence[RecipeColumn], heads: Given) -> dict[str, str]:
    """The folders or hub ids by column; an error if there is no such column, or no LM head in one."""
    if heads and not recipe.decoded:
        raise BadOption(f"{recipe.name} decodes no layer: leave --lm-head (lm_heads=) out")
    if isinstance(heads, (str, Path)):
        heads = {column.folder: heads for column in columns}
    check_columns(recipe, heads)
    for source in set(map(str, heads.values())):
        load_head(source)
    return {name: str(source) for name, source in heads.items()}


def column_head(opened: Opened, subject: Subject, settings: ReproductionSettings) -> ColumnHead | str:
    """The LM head of a column, or why there is none; one that was asked for and does not fit is a `BadOption`."""
    column, asked = opened.column, settings.lm_heads.get(opened.column.folder)
    try:
        hidden = Prediction(subject.model, collate(subject, [encode(subject, TRIED)])).hidden
    except WhyformerError as error:
        return f"its layers cannot be decoded ({error})"
    layers, reason = len(hidden) - 1, "the model comes with no LM head"
    for source in [asked] if asked else _unasked(opened, settings):
        try:
            head_for(subject.model, source, hidden[0], subject.tokenizer)
        except WhyformerError as error:
            if asked:
                raise BadOption(f"{column.label}: {error}") from error
            without_advice = str(error).partition(": give ")[0]
            reason += f", and {source} does not do ({without_advice})" if source else ""
        else:
            return ColumnHead(source, layers, f"layers are decoded by {_origin(subject, source, column)}")
    return (
        f"{reason}: give --lm-head {column.folder}=FOLDER (lm_heads=), the pretrained model that it was fine-tuned from"
    )


def _unasked(opened: Opened, settings: ReproductionSettings) -> list[str | None]:
    """What is tried where none was asked for: the model's own, then the paper's if the model is from the hub too."""
    of_hub = settings.models is None and not Path(opened.model).exists()
    return [None, opened.column.lm_head] if of_hub and opened.column.lm_head else [None]


def _origin(subject: Subject, source: str | None, column: RecipeColumn) -> str:
    if source is None:
        return "the model's own LM head" if own_head(subject.model) else "the LM head that comes with the model"
    theirs = f"; the paper's is that of {column.lm_head}" if column.lm_head and source != column.lm_head else ""
    return f"the LM head of {source}{theirs}"
