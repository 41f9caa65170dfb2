"""The tables and figures of Decoded layer saliency (2023)."""

from collections.abc import Callable

from whyformer.reproduce.recipe import Column, Measure, Number, Reproduction, Row, grid

PAPER = "Decoded layer saliency (2023)"

_SST2 = Column("SST-2", "sst2@decoded", "sst2", architecture="RoBERTa-base", texts=872)
_AG_NEWS = Column("AG News", "ag_news@decoded", "agnews", architecture="RoBERTa-base", texts=7_600)
_BLOCKS = 12  # of RoBERTa-base

_GAMES = (
    Measure("revealing", "revealing_game(hide=mask_unattended)"),
    Measure("hiding", "hiding_game(hide=mask_unattended)", higher_is_better=False),
)
_GRAD_CAM = Row("Grad-CAM l0", "cam(layer=0)")
_RANDOM = Row("Random", "random(seed={seed})", runs=20)
_GRADIENTS = (
    Row("Simple", "saliency(protocol=allennlp)"),
    Row("Smooth", "smooth_grad(protocol=allennlp)"),
    Row("Integrated", "integrated_gradients(protocol=allennlp)"),
)


def _decoded(layer: int, *columns: str) -> Row:
    return Row(f"decoded l{layer}", f"decoded_grad_cam(layer={layer})", columns=columns)


_ON_SST2 = (_GRAD_CAM, *map(_decoded, (5, 6, 7, 8)), *_GRADIENTS, _RANDOM)
_ON_AG_NEWS = (
    _GRAD_CAM,
    *map(_decoded, (6, 8, 9)),
    Row("Shapley", "shapley_value_sampling"),
    Row("Occlusion", "occlusion"),
    Row("Integrated", "integrated_gradients(steps=25)"),
    Row("GradientShap", "gradient_shap"),
    Row("LIME", "lime"),
    Row("GradxAct", "input_x_gradient(at=embedding_output)"),
    Row("DeepLiftShap", "deep_lift_shap"),
    _RANDOM,
)
_PLAYED = (
    "accuracy against the gold label at 0, 10, …, 100 % of the tokens; hidden ones become [MASK] and are taken out of "
    "attention, most important first",
    "Grad-CAM l0 is activation times gradient at the embedding output; the paper takes its positive part, which leaves "
    "the order of the tokens that speak against the class open",
    "Random is the mean of 20 orders",
)
_ALLENNLP = "the paper's Simple, Smooth and Integrated explain RoBERTa-large"

TABLE_1 = Reproduction(
    name="decoded-table-1",
    paper=PAPER,
    title="Revealing and hiding game on SST-2, area under the curve",
    kind="table",
    columns=(_SST2,),
    rows=_ON_SST2,
    measures=_GAMES,
    published=grid(
        ("SST-2",),
        ("revealing", "hiding"),
        {
            "Grad-CAM l0": ("0.797 / 0.713",),
            "decoded l5": ("0.832 / 0.64",),
            "decoded l6": ("0.854 / 0.617",),
            "decoded l7": ("0.867 / 0.609",),
            "decoded l8": ("0.836 / 0.66",),
            "Simple": ("0.799 / 0.756",),
            "Smooth": ("0.795 / 0.750",),
            "Integrated": ("0.804 / 0.762",),
            "Random": ("0.748 / 0.756",),
        },
    ),
    notes=(*_PLAYED, _ALLENNLP),
)

TABLE_2 = Reproduction(
    name="decoded-table-2",
    paper=PAPER,
    title="Revealing and hiding game on AG News, area under the curve",
    kind="table",
    columns=(_AG_NEWS,),
    rows=_ON_AG_NEWS,
    measures=_GAMES,
    published=grid(
        ("AG News",),
        ("revealing", "hiding"),
        {
            "Grad-CAM l0": ("0.853 / 0.804",),
            "decoded l6": ("0.895 / 0.739",),
            "decoded l8": ("0.867 / 0.782",),
            "decoded l9": ("0.879 / 0.774",),
            "Shapley": ("0.905 / 0.567",),
            "Occlusion": ("0.894 / 0.731",),
            "Integrated": ("0.897 / 0.661",),
            "GradientShap": ("0.86 / 0.784",),
            "LIME": ("0.851 / 0.792",),
            "GradxAct": ("0.851 / 0.794",),
            "DeepLiftShap": ("0.823 / 0.842",),
            "Random": ("0.829 / 0.841",),
        },
    ),
    notes=_PLAYED,
)


def _curves(
    number: int, of: Reproduction, which: str, rows: tuple[Row, ...], essential: tuple[str, ...] = ()
) -> Reproduction:
    labels = {row.label for row in rows}
    return Reproduction(
        name=f"decoded-figure-{number}",
        paper=PAPER,
        title=f"Accuracy while tokens are revealed and hidden, {which} layers, {of.columns[0].label}",
        kind="curves",
        columns=of.columns,
        rows=rows,
        measures=_GAMES,
        published={key: value for key, value in of.published.items() if key[0] in labels},
        essential=essential,
        notes=("the curves are not published as numbers: the areas under some stand in Tables 1 and 2", *of.notes),
    )


_LAYERS = (_GRAD_CAM, *map(_decoded, range(1, _BLOCKS + 1)))
FIGURE_2 = _curves(2, TABLE_1, "the best", _ON_SST2)
FIGURE_3 = _curves(3, TABLE_2, "the best", _ON_AG_NEWS)
FIGURE_5 = _curves(5, TABLE_1, "all", _LAYERS, essential=("decoded l1",))
FIGURE_6 = _curves(6, TABLE_2, "all", _LAYERS, essential=("decoded l1",))

_SHARED = (
    _decoded(7, "SST-2"),
    *(Row(row.label, row.method, columns=("SST-2",)) for row in _GRADIENTS),
    _decoded(6, "AG News"),
    Row("Shapley", "shapley_value_sampling", columns=("AG News",)),
)
_WORDS = (
    "words are counted, lower-cased and weighted by their inverse document frequency (in the data itself unless "
    "another is given); the paper counts tokens, weighted over 50,000 Wikipedia articles"
)


def _overlaps(scale: Callable[[int], float]) -> tuple[Measure, ...]:
    return tuple(
        Measure(f"top {k}", f"token_overlap(k={k})", higher_is_better=False, scale=scale(k), at=k)
        for k in range(10, 101, 10)
    )


FIGURE_4 = Reproduction(
    name="decoded-figure-4",
    paper=PAPER,
    title="How many of the top k words of a class another class shares, percent",
    kind="curves",
    columns=(_SST2, _AG_NEWS),
    rows=_SHARED,
    measures=_overlaps(lambda k: 100),
    notes=("the curves are not published as numbers, nor is the range of k stated", _WORDS, _ALLENNLP),
)

_COUNTS = {  # of AG News the mean over the six pairs of classes
    ("decoded l7", "SST-2", "top 50"): Number(0),
    ("Simple", "SST-2", "top 50"): Number(3),
    ("Smooth", "SST-2", "top 50"): Number(6),
    ("Integrated", "SST-2", "top 50"): Number(5),
    ("decoded l6", "AG News", "top 50"): Number((0 + 6 + 1 + 1 + 0 + 1) / 6),
    ("Shapley", "AG News", "top 50"): Number((20 + 16 + 19 + 16 + 3 + 4) / 6),
}
_COUNTED = "of AG News the published counts, one for each of six pairs of classes, are averaged"

FIGURE_9 = Reproduction(
    name="decoded-figure-9",
    paper=PAPER,
    title="How many of the top k words two classes share, mean over the pairs of classes",
    kind="curves",
    columns=(_SST2, _AG_NEWS),
    rows=_SHARED,
    measures=_overlaps(lambda k: k),
    published=_COUNTS,
    notes=("counts are published for k = 50 only", _COUNTED, _WORDS, _ALLENNLP),
)

TABLES_3_9 = Reproduction(
    name="decoded-tables-3-9",
    paper=PAPER,
    title="The words among the top 50 that two classes share, and how many, mean over the pairs of classes",
    kind="words",
    columns=(_SST2, _AG_NEWS),
    rows=_SHARED,
    measures=tuple(measure for measure in FIGURE_9.measures if measure.label == "top 50"),
    published=_COUNTS,
    notes=(_COUNTED, _WORDS, _ALLENNLP),
)


def _cloud(number: int, column: Column) -> Reproduction:
    return Reproduction(
        name=f"decoded-figure-{number}",
        paper=PAPER,
        title=f"Word clouds of the top 50 tokens of each class, {column.label}",
        kind="figure",
        columns=(column,),
        rows=tuple(row for row in _SHARED if column.label in row.columns),
        waits_for="word clouds of the top tokens of each class",
    )


FIGURE_7 = _cloud(7, _SST2)
FIGURE_8 = _cloud(8, _AG_NEWS)

HIGHLIGHTS = Reproduction(
    name="decoded-a5",
    paper=PAPER,
    title="Highlighted texts of appendix A.5",
    kind="comparison",
    columns=(_SST2,),
    rows=(_decoded(7), _GRAD_CAM, *_GRADIENTS),
    examples={
        "SST-2": (
            "unflinchingly bleak and desperate",
            "so unremittingly awful that labeling it a dog probably constitutes cruelty to canines.",
            "birthday girl is an amusing joy ride, with some surprisingly violent moments.",
            "more romantic, more emotional and ultimately more satisfying than the teary-eyed original.",
        )
    },
    notes=(_PLAYED[1], _ALLENNLP),
)

REPRODUCTIONS = (
    *(TABLE_1, TABLE_2, FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9),
    *(TABLES_3_9, HIGHLIGHTS),
)
