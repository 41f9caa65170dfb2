"""The tables and figures of Decoded layer saliency (2023)."""

from collections import defaultdict
from dataclasses import replace
from statistics import fmean
from typing import Any

from whyformer_papers.reproduce.decoded_tokens import SHARED_TOKENS
from whyformer_papers.reproduce.published import Number, Published, published
from whyformer_papers.reproduce.recipe import RecipeColumn, RecipeMetric, RecipeRow
from whyformer_papers.reproduce.tables import CurveFigure, TableRecipe
from whyformer_papers.reproduce.text_figures import DecodedFigure, LookedUp, MethodFigure
from whyformer_papers.reproduce.word_figures import CloudFigure, CountFigure, SharedWordTable, ShareFigure

PAPER = "Decoded layer saliency (2023)"

_PRETRAINED = "roberta-base"  # whose LM head decodes
_SST2 = RecipeColumn("SST-2", "sst2@decoded", "sst2", architecture="RoBERTa-base", texts=872, lm_head=_PRETRAINED)
_AG_NEWS = RecipeColumn(
    "AG News", "ag_news@decoded", "agnews", architecture="RoBERTa-base", texts=7_600, lm_head=_PRETRAINED
)
_BLOCKS = 12  # of RoBERTa-base

_GAMES = (
    RecipeMetric("revealing", "revealing_game(hide=mask_unattended)"),
    RecipeMetric("hiding", "hiding_game(hide=mask_unattended)", higher_is_better=False),
)
_GRAD_CAM = RecipeRow("Grad-CAM l0", "decoded_grad_cam(layer=0, decode=false)")
_RANDOM = RecipeRow("Random", "random(seed={seed})", runs=20)
_GRADIENTS = (
    RecipeRow("Simple", "saliency(protocol=allennlp)"),
    RecipeRow("Smooth", "smooth_grad(protocol=allennlp)"),
    RecipeRow("Integrated", "integrated_gradients(protocol=allennlp)"),
)
_LENGTH = RecipeRow("Smooth, length", "smooth_grad")


def _decoded(layer: int, *columns: str) -> RecipeRow:
    return RecipeRow(f"decoded l{layer}", f"decoded_grad_cam(layer={layer}, lm_head={{lm_head}})", columns=columns)


_ON_SST2 = (
    replace(_GRAD_CAM, also=("cam(layer=0)",)),
    *map(_decoded, (5, 6, 7, 8)),
    _GRADIENTS[0],
    replace(_GRADIENTS[1], also=(_LENGTH.method,)),
    _GRADIENTS[2],
    _RANDOM,
)
_SHAPLEY = RecipeRow("Shapley", "shapley_value_sampling(samples=25)")
_OCCLUSION = RecipeRow("Occlusion", "occlusion(window=3)")
_INTEGRATED = RecipeRow("Integrated", "integrated_gradients(steps=25, at=embedding_output)")
_ON_AG_NEWS = (
    _GRAD_CAM,
    *map(_decoded, (6, 8, 9)),
    _SHAPLEY,
    _OCCLUSION,
    _INTEGRATED,
    RecipeRow("GradientShap", "gradient_shap(samples=5, at=embedding_output)"),
    RecipeRow("LIME", "lime(samples=25)"),
    RecipeRow("GradxAct", "input_x_gradient(at=embedding_output)"),
    RecipeRow("DeepLiftShap", "deep_lift_shap(at=embedding_output)"),
    _RANDOM,
)
_POSITIVE = (
    "Grad-CAM l0 is the positive part of activation times gradient at the embedding output, as in the paper; the order "
    "of the tokens that speak against the class is then open"
)
_PLAYED = (
    "accuracy against the gold label at 0, 10, …, 100 % of the tokens; hidden ones become [MASK] and are taken out of "
    "attention, most important first",
    "Random is the mean of 20 orders",
    "l1, l2, … are the outputs of the layers, the paper's of 12: a model of another depth has others",
)
_SIGNED = "the second reading of Grad-CAM l0 keeps the sign, and with it the order of all tokens"
_ALLENNLP = (
    "the paper's Simple, Smooth and Integrated explain RoBERTa-large; AllenNLP's Smooth sums the averaged gradient "
    "over its width, which LayerNorms make 0 but for rounding: it is refused in such models, RoBERTa among them"
)
_LENGTHS = "the second reading of Smooth is the length of that gradient"
_THERMOSTAT = (
    "the paper's other rows are Thermostat's, which fills Occlusion's windows with token 0, gives LIME's linear model "
    "token ids, and draws GradientShap's points between token ids; here: padding, zeros and ones, embeddings"
)


def _games(number: int, column: RecipeColumn, rows: tuple[RecipeRow, ...], notes: tuple[str, ...]) -> TableRecipe:
    """A table of the two games on one data set."""
    return TableRecipe(
        name=f"decoded-table-{number}",
        paper=PAPER,
        title=f"Revealing and hiding game on {column.label}, area under the curve",
        columns=(column,),
        rows=rows,
        measures=_GAMES,
        published=published(f"decoded-table-{number}"),
        notes=(*_PLAYED, *notes),
    )


TABLE_1 = _games(
    1,
    _SST2,
    _ON_SST2,
    (f"{_POSITIVE}; {_SIGNED}", f"{_ALLENNLP}; {_LENGTHS}"),
)

TABLE_2 = _games(
    2,
    _AG_NEWS,
    _ON_AG_NEWS,
    (f"{_POSITIVE}; GradxAct is the same with its sign", _THERMOSTAT),
)


def _curves(
    number: int, table: TableRecipe, which: str, rows: tuple[RecipeRow, ...], essential: tuple[str, ...] = ()
) -> CurveFigure:
    labels = {row.label for row in rows}
    return CurveFigure(
        name=f"decoded-figure-{number}",
        paper=PAPER,
        title=f"Accuracy while tokens are revealed and hidden, {which} layers, {table.columns[0].label}",
        columns=table.columns,
        rows=rows,
        measures=_GAMES,
        published={key: value for key, value in table.published.items() if key[0] in labels},
        essential=essential,
        notes=("the curves are not published as numbers: the areas under some stand in Tables 1 and 2", *table.notes),
    )


_LAYERS = (_GRAD_CAM, *map(_decoded, range(1, _BLOCKS + 1)))
FIGURE_2 = _curves(2, TABLE_1, "the best", _ON_SST2)
FIGURE_3 = _curves(3, TABLE_2, "the best", _ON_AG_NEWS)
FIGURE_5 = _curves(5, TABLE_1, "all", _LAYERS, essential=("decoded l1",))
FIGURE_6 = _curves(6, TABLE_2, "all", _LAYERS, essential=("decoded l1",))

_MIDDLE = RecipeRow("decoded, middle", "decoded_grad_cam(lm_head={lm_head})")
_DEPTH = (
    "decoded, middle is not in the paper: the layer that a bundled model comes with, else the one in the middle, which "
    "need not be a good one, for models that do not have the paper's layer"
)
_SHARED = (
    _decoded(7, "SST-2"),
    _decoded(6, "AG News"),
    _MIDDLE,
    *(replace(row, columns=("SST-2",)) for row in (*_GRADIENTS, _LENGTH)),
    *(replace(row, columns=("AG News",)) for row in (_SHAPLEY, _OCCLUSION)),
    replace(_INTEGRATED, label="Integrated, 25 steps", columns=("AG News",)),
)
_WORDS = (
    "top 50 and the pictures are of tokens as the tokenizer spells them, each distinct one of a text once, as in the "
    "paper (a method that scores places gives it the mean over them); top 50 words is of lower-cased words, each as "
    "often as it stands there",
    "sums are weighted by log(N / n) for a word that stands in n of N = 26,782 articles of English Wikipedia, a token "
    "by its letters; the paper weights over 50,000 articles",
)
_SMOOTH = f"{_ALLENNLP}; Smooth, length is not in the paper: the length of that gradient"
_NOTES = (*_WORDS, _DEPTH, _SMOOTH)


def _counts() -> Published:
    """Return the published counts, for AG News the mean over the six pairs of classes."""
    counts = defaultdict(list)
    for (row, classes, measure), number in published("decoded-tables-3-9").items():
        counts[row, "SST-2" if classes == "SST-2" else "AG News", measure].append(number.value)
    return {key: Number(fmean(values)) for key, values in counts.items()}


def _shared(kind: type[TableRecipe], name: str, title: str, *notes: str, **more: Any) -> TableRecipe:
    """The top 50 tokens that classes share: in percent, or how many, with the counts that were published."""
    return kind(
        name=f"decoded-{name}",
        paper=PAPER,
        title=title,
        columns=(_SST2, _AG_NEWS),
        rows=_SHARED,
        measures=_top_50(100 if kind is ShareFigure else 50),
        published={} if kind is ShareFigure else _counts(),
        notes=(*notes, *_NOTES),
        **more,
    )


def _top_50(scale: float) -> tuple[RecipeMetric, ...]:
    """As the paper counts, and in words."""
    return (
        RecipeMetric("top 50", "token_overlap(k=50, units=token, once=true)", higher_is_better=False, scale=scale),
        RecipeMetric("top 50 words", "token_overlap(k=50)", higher_is_better=False, scale=scale),
    )


_COUNTED = (
    "of AG News the published counts, one for each of six pairs of classes, are averaged; decoded l6 shares two tokens "
    "of Sports and Business, a backslash and yesterday; Shapley's row for World and Sci/Tech is word for word that for "
    "World and Business, a slip of the paper"
)

FIGURE_4 = _shared(
    ShareFigure,
    "figure-4",
    "How many of the top k tokens of a class another class shares, percent",
    "the curves are not published as numbers, nor is the range of k stated: here 1, 2, …, 50",
)
FIGURE_9 = _shared(
    CountFigure,
    "figure-9",
    "How many of the top k tokens two classes share, mean over the pairs of classes",
    "counts are published for k = 50 only; the picture adds up all pairs",
    _COUNTED,
)
TABLES_3_9 = _shared(
    SharedWordTable,
    "tables-3-9",
    "The tokens among the top 50 that two classes share, and how many, mean over the pairs of classes",
    _COUNTED,
    printed=SHARED_TOKENS,
)


def _cloud(number: int, column: RecipeColumn) -> CloudFigure:
    rows = tuple(row for row in _SHARED if column.label in (row.columns or (column.label,)))
    return CloudFigure(
        name=f"decoded-figure-{number}",
        paper=PAPER,
        title=f"Word clouds of the top 50 tokens of each class, {column.label}",
        measures=_top_50(100),
        rows=rows,
        columns=(column,),
        notes=(
            "top 50 is the percentage of the top 50 tokens that another class shares; the clouds are not published as "
            "numbers",
            *(_NOTES if column is _SST2 else _NOTES[:-1]),
        ),
    )


FIGURE_7 = _cloud(7, _SST2)
FIGURE_8 = _cloud(8, _AG_NEWS)

FIGURE_1 = DecodedFigure(
    name="decoded-figure-1",
    paper=PAPER,
    title="What each layer says at each position: hidden states decoded by the LM head",
    columns=(_SST2,),
    rows=(RecipeRow("sum", "decoded_grad_cam(layers=all, vocabulary=1, lm_head={lm_head})"),),
    essential=("sum",),
    examples={"SST-2": ("big dog",)},
    notes=(
        "the paper's figure is a scheme, without numbers; here its input is decoded, with the most likely token of "
        "each position and its probability",
        "the picture has the saliency of each layer's decoded tokens, L0 is the embedding output",
    ),
)

HIGHLIGHTS = MethodFigure(
    name="decoded-a5",
    paper=PAPER,
    title="Highlighted texts of appendix A.5",
    columns=(_SST2, _AG_NEWS),
    rows=(*_SHARED[:3], replace(_GRAD_CAM, columns=("SST-2",)), *_SHARED[3:]),
    examples={
        "SST-2": (
            "unflinchingly bleak and desperate",
            "so unremittingly awful that labeling it a dog probably constitutes cruelty to canines.",
            "birthday girl is an amusing joy ride, with some surprisingly violent moments.",
            "more romantic, more emotional and ultimately more satisfying than the teary-eyed original.",
        ),
        "AG News": (
            LookedUp("Dutch Retailer Beats Apple to Local Download Market"),
            LookedUp("Charity chief kidnapped in Iraq"),
            LookedUp("Hockey Labor Talks Broken Off"),
            LookedUp("United Pilots Cut Deal on Pensions"),
        ),
    },
    notes=(
        "the four AG News texts are looked up in the test set by their headlines (rows 12, 4077, 7347, 7554); the "
        "paper prints the second and the third without their ends, and so does the data set",
        *(_POSITIVE, _DEPTH, _SMOOTH),
    ),
)

REPRODUCTIONS = (
    *(FIGURE_1, TABLE_1, TABLE_2, FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9),
    *(TABLES_3_9, HIGHLIGHTS),
)
