"""The tables and figures of Transformer Attribution (Chefer, Gur and Wolf 2021)."""

from dataclasses import replace
from itertools import product

from whyformer_papers.reproduce.image_figures import ImageFigure, TwoObjectFigure
from whyformer_papers.reproduce.published import published
from whyformer_papers.reproduce.recipe import RecipeColumn, RecipeMetric, RecipeRow
from whyformer_papers.reproduce.tables import CurveFigure, TableRecipe

PAPER = "Transformer Attribution (Chefer et al. 2021)"
RANGE = 0.8  # of the shares of pixels that are hidden, 10 … 90 %
_IMAGENET = RecipeColumn("ImageNet", "imagenet", "imagenet", architecture="ViT-B/16", texts=50_000)
_SEGMENTED = RecipeColumn(
    "ImageNet-Segmentation",
    "imagenet_segmentation",
    "imagenet_segmentation",
    architecture="ViT-B/16",
    texts=4_276,
)
_ROWS = (
    RecipeRow("rollout", "rollout(row_normalised=false)"),
    RecipeRow("raw attention", "raw_attention(layer=-1)"),
    RecipeRow("GradCAM", "grad_cam(over=row)"),
    RecipeRow("LRP", "lrp(book=alpha_beta)"),
    RecipeRow("partial LRP", "partial_lrp(book=alpha_beta)"),
    RecipeRow("theirs", "transformer_attribution(row_normalised=false)"),
)
_IMAGE_ROWS = (
    RecipeRow("rollout", "rollout", also=("rollout(first_layer=1)",)),
    *_ROWS[1:-1],
    RecipeRow("theirs", "transformer_attribution", also=("transformer_attribution(first_layer=1)",)),
)
_PRIORS = (RecipeRow("random", "random"), RecipeRow("centre of the image", "centre"))
_IMAGE_NOTES = (
    "rollout and theirs: the second reading leaves the first block out, as the authors' code does (start_layer=1)",
    "rollout: the paper does not normalise rows; they add up to the same number, so it is the same up to a factor",
)
_AREA = (
    "the paper does not say how it takes the area: here it is the trapezoid over 10 … 90 % of the pixels, and beside "
    "it the same divided by 0.8, which is the mean accuracy"
)
_SEGMENTATION = (
    RecipeMetric("pixel accuracy", "pixel_accuracy", scale=100),
    RecipeMetric("mAP", "mean_average_precision", scale=100),
    RecipeMetric("mIoU", "mean_iou", scale=100),
)


def _perturbation(kind: str, target: str, mean: bool = False) -> RecipeMetric:
    chosen = "gold" if target == "target" else "predicted"
    label = f"{kind}, {target}"
    measure = RecipeMetric(
        label, f"{kind}_perturbation(target={chosen})", higher_is_better=kind == "negative", scale=100
    )
    return replace(measure, label=f"{label}, mean accuracy", scale=100 / RANGE, beside=label) if mean else measure


_KINDS = tuple(product(("negative", "positive"), ("predicted", "target")))
_PERTURBATIONS = tuple(_perturbation(*kind) for kind in _KINDS)
_MEANS = tuple(_perturbation(kind, "predicted", mean=True) for kind in ("negative", "positive"))


def _of_images(
    number: int,
    title: str,
    columns: tuple[RecipeColumn, ...],
    rows: tuple[RecipeRow, ...],
    measures: tuple[RecipeMetric, ...],
    notes: tuple[str, ...],
) -> TableRecipe:
    return TableRecipe(
        name=f"transformer-attribution-table-{number}",
        paper=PAPER,
        title=title,
        columns=columns,
        rows=rows,
        measures=measures,
        published=published(f"transformer-attribution-table-{number}"),
        notes=notes,
    )


TABLE_1 = _of_images(
    1,
    "Area under the curve of positive and negative perturbation on ImageNet, percent",
    (_IMAGENET,),
    (*_IMAGE_ROWS, _PRIORS[0]),
    (*_PERTURBATIONS, *_MEANS),
    (*_IMAGE_NOTES, _AREA),
)

TABLE_2 = _of_images(
    2,
    "Segmentation of ImageNet images by the explanation, percent",
    (_SEGMENTED,),
    (*_IMAGE_ROWS, *_PRIORS),
    _SEGMENTATION,
    (*_IMAGE_NOTES, "random and the centre of the image are not in the paper: what a map must beat"),
)

_ABLATED = (
    RecipeRow("without ∇A", "transformer_attribution(weight=attention)"),
    RecipeRow(
        "block nearest the output",
        "transformer_attribution(block=-1)",
        also=("transformer_attribution(block=-1, book=alpha_beta)",),
    ),
    RecipeRow(
        "block B-1",
        "transformer_attribution(block=1)",
        also=("transformer_attribution(block=1, book=alpha_beta)",),
    ),
    RecipeRow("full", "transformer_attribution", also=("transformer_attribution(first_layer=1)",)),
)
_ABLATIONS = (
    *(replace(measure, columns=(_SEGMENTED.label,)) for measure in _SEGMENTATION),
    *(replace(measure, columns=(_IMAGENET.label,)) for measure in (_PERTURBATIONS[2], _PERTURBATIONS[0])),
)

TABLE_3 = _of_images(
    3,
    "Ablations: segmentation and perturbation with parts of the method, percent",
    (_SEGMENTED, _IMAGENET),
    _ABLATED,
    _ABLATIONS,
    (
        "one block: the second reading takes the relevance of the original LRP, as the authors' code does",
        "full: the second reading leaves the first block out, as the authors' code does (start_layer=1)",
        _AREA,
    ),
)

FIGURE_2 = ImageFigure(
    name="transformer-attribution-figure-2",
    paper=PAPER,
    title="Images by every method",
    columns=(_IMAGENET,),
    rows=_IMAGE_ROWS,
    notes=("the images are the first of the data, and not those of the paper",),
)
FIGURE_3 = TwoObjectFigure(
    name="transformer-attribution-figure-3",
    paper=PAPER,
    title="Images with two objects, the two classes side by side",
    columns=(_IMAGENET,),
    rows=_IMAGE_ROWS,
    notes=("the paper has photographs of two animals; here each is of two images of the data, set side by side",),
)

FIGURE_4 = CurveFigure(
    name="transformer-attribution-figure-4",
    paper=PAPER,
    title="Token-F1 with the human rationales of Movie Reviews, top 10, 20, …, 80 words",
    columns=(RecipeColumn("Movie Reviews", "movies@transformer_attribution", "movies", texts=200),),
    rows=(
        *_ROWS[:2],
        RecipeRow("GradCAM", "grad_cam(over=map)", also=("grad_cam(over=row)",)),
        *_ROWS[3:5],
        RecipeRow(
            "theirs",
            "transformer_attribution(row_normalised=true)",
            also=(
                "transformer_attribution(row_normalised=true, first_layer=-1)",
                "transformer_attribution(row_normalised=false)",
            ),
        ),
    ),
    measures=(
        RecipeMetric("token-F1", "token_f1(k=10,20,30,40,50,60,70,80, target=gold)"),
        RecipeMetric("token-F1 inside the window", "token_f1(k=10,20,30,40,50,60,70,80, target=gold, window=inside)"),
    ),
    notes=(
        "token-F1 counts evidence beyond the model's window as missed, like ERASER, so a long review lowers it for "
        "every method; token-F1 inside the window counts the evidence that the model saw",
        "the curves are not published as numbers; the paper finds its own method best at every k",
        "the paper's BERT-base is fine-tuned on the 1,600 training reviews",
        "GradCAM: the first reading is what the authors' BERT code does, the second what the paper writes",
        "theirs: rows normalised as in the authors' BERT code, over all layers and over the last alone, which is what "
        "their pipeline for these reviews runs (it leaves start_layer at its default); then as the paper writes",
    ),
)

REPRODUCTIONS = (TABLE_1, TABLE_2, TABLE_3, FIGURE_2, FIGURE_3, FIGURE_4)
