"""The tables and figures of AttCAT (Qiang et al. 2022)."""

from whyformer_papers.reproduce.published import published
from whyformer_papers.reproduce.recipe import RecipeColumn, RecipeMetric, RecipeRow
from whyformer_papers.reproduce.tables import BarFigure, CurveFigure, TableRecipe
from whyformer_papers.reproduce.text_figures import LayerFigure, LookedUp, MethodFigure

PAPER = "AttCAT (Qiang et al. 2022)"

_COLUMNS = (
    RecipeColumn("SST2", "sst2@attcat", "sst2", "textattack/bert-base-uncased-SST-2", texts=872),
    RecipeColumn("QQP", "qqp@attcat", "qqp", "textattack/bert-base-uncased-QQP", texts=40_430),
    RecipeColumn("MNLI", "mnli@attcat", "nli", "textattack/bert-base-uncased-MNLI"),
    RecipeColumn("Amazon", "amazon@attcat", "amazon", "fabriceyhc/bert-base-uncased-amazon_polarity", texts=2_000),
    RecipeColumn("Yelp", "yelp@attcat", "yelp", "fabriceyhc/bert-base-uncased-yelp_polarity", texts=2_000),
    RecipeColumn("IMDB", "imdb@attcat", "imdb", "fabriceyhc/bert-base-uncased-imdb", texts=2_000),
)

_ATTENTION = (
    RecipeRow("RawAtt", "raw_attention(layer=-1)", also=("raw_attention(layer=mean)",)),
    RecipeRow("Rollout", "rollout(row_normalised=true)"),
)
_OF_CLASSES = (
    RecipeRow("Grads", "grads(query=reader)"),
    RecipeRow("AttGrads", "att_grads"),
    RecipeRow("PartialLRP", "partial_lrp(book=alpha_beta)"),
    RecipeRow(
        "TransAtt",
        "transformer_attribution(row_normalised=true)",
        also=("transformer_attribution(row_normalised=false)",),
    ),
    RecipeRow("CAT", "cat(states=inputs)", also=("cat(states=outputs)",)),
    RecipeRow("AttCAT", "attcat(states=inputs)", also=("attcat(states=outputs)",)),
)
_READINGS = (
    "where a row has two readings, the first is what the authors' code does (hidden states that enter a layer, "
    "normalised rows), the second what the paper writes; of RawAtt the paper allows both, the last layer and the mean "
    "over layers",
    "the paper names no checkpoints: those of the authors' notebooks are used",
    "of Amazon, Yelp and IMDB 2,000 random rows are used; which ones the authors drew is not known",
    "MNLI: the matched validation set",
)
_CODE = (
    "the authors' code follows the gold label, takes [CLS] and [SEP] out of attention while it explains, and runs "
    "pairs without segment ids"
)
_MNLI = (
    "the MNLI checkpoint has its classes in another order than the data set (0 is contradiction, 1 entailment, 2 "
    "neutral), and the code does not translate: the gold label names another class, seldom the predicted one"
)


def _authors(label: str, metric: str, *, higher_is_better: bool = True) -> RecipeMetric:
    """A measure as the authors' code takes it; of pairs special tokens are hidden too."""
    plain, pairs = metric.format(""), metric.format(", special_tokens=true")
    return RecipeMetric(label, plain, higher_is_better, protocol="attcat", pairs=pairs)


TABLE_1 = TableRecipe(
    name="attcat-table-1",
    paper=PAPER,
    title="AOPC and LOdds of every method on six data sets, BERT",
    columns=_COLUMNS,
    rows=(*_ATTENTION, *_OF_CLASSES),
    measures=(
        _authors("AOPC", "aopc(hide=delete, protocol=attcat, target=gold{})"),
        _authors("LOdds", "log_odds(hide=pad_attended, protocol=attcat, target=gold{})", higher_is_better=False),
        RecipeMetric("AOPC, Eq. 13", "aopc(hide=delete)", beside="AOPC"),
        RecipeMetric("LOdds, Eq. 14", "log_odds(hide=pad_attended)", higher_is_better=False, beside="LOdds"),
    ),
    published=published("attcat-table-1"),
    notes=(
        "AOPC deletes tokens, LOdds replaces them by [PAD]. First as in the authors' code: in nine steps, AOPC with "
        "the size of each step; of pairs special tokens are hidden too (the code compares tokens with ids); then by "
        "the equations: signed, 0, 10, …, 100 % of the tokens, the predicted class. Texts of fewer than 10 tokens are "
        "left out, as in the code",
        _CODE,
        _MNLI,
        *_READINGS,
    ),
)

TABLE_2 = TableRecipe(
    name="attcat-table-2",
    paper=PAPER,
    title="Kendall correlation between the explanations of different classes",
    columns=_COLUMNS,
    rows=_OF_CLASSES,
    measures=(
        RecipeMetric("Kendall", "kendall_tau(protocol=attcat, target=gold)", higher_is_better=False, protocol="attcat"),
        RecipeMetric("Kendall, Eq. 15", "kendall_tau(protocol=attcat)", higher_is_better=False, beside="Kendall"),
    ),
    published=published("attcat-table-2"),
    notes=(
        "the two lists of positions in order of their score are correlated, as the paper writes; the scores "
        "themselves (the default of kendall_tau) can have another sign; texts of fewer than 10 tokens are left out",
        "first as in the authors' code, then for the predicted class; of three classes the code takes one other, here "
        "it is the mean over both",
        _CODE,
        _MNLI,
        *_READINGS,
    ),
)

_ANSWERED = (("SQuAD v1", "squad", 10_570), ("SQuAD v2", "squad_v2", 11_873))
_FAMILIES = (("BERT", ""), ("DistilBERT", "-distilbert"), ("RoBERTa", "-roberta"))
_NAMED = {
    "squad": "csarron/bert-base-uncased-squad-v1",
    "squad-distilbert": "distilbert-base-uncased-distilled-squad",
    "squad-roberta": "thatdramebaazguy/roberta-base-squad",
    "squad_v2": "deepset/bert-base-uncased-squad2",
    "squad_v2-distilbert": "distilbert-base-uncased-distilled-squad",
    "squad_v2-roberta": "thatdramebaazguy/roberta-base-squad",
}
_QUESTIONS = tuple(
    RecipeColumn(f"{label}, {family}", f"{data}@attcat", data + ending, _NAMED[data + ending], family, texts)
    for label, data, texts in _ANSWERED
    for family, ending in _FAMILIES
)
_LONGEST = published("attcat-figure-3")  # of each data set; the same for every model

FIGURE_3 = BarFigure(
    name="attcat-figure-3",
    paper=PAPER,
    title="Precision@20: answer tokens among the top 20, SQuAD v1 and v2, three architectures",
    columns=_QUESTIONS,
    rows=(
        RecipeRow("RawAtt", "raw_attention(layer=-1, query=mean)", also=("raw_attention(layer=-1)",)),
        RecipeRow("Rollout", "rollout(row_normalised=true, query=mean)", also=("rollout(row_normalised=true)",)),
        *_OF_CLASSES,
        RecipeRow("attainable", "raw_attention(layer=-1)", metric="precision_at_k(k=100000, measure=count)"),
    ),
    measures=(RecipeMetric("Precision@20", "precision_at_k(k=20, measure=count)"),),
    published={
        (row, column.label, measure): number
        for (row, data, measure), number in _LONGEST.items()
        for column in _QUESTIONS
        if column.label.startswith(data)
    },
    notes=(
        "the bars are not published as numbers; attainable is the mean answer length: the count with all tokens on top",
        "the answer of the model is explained; questions without an answer are left out; of a context that does not "
        "fit the window of the best answer is explained, and answer tokens outside of it are missed",
        "the first reading of RawAtt and Rollout is the mean over all queries, as in the authors' code for answers "
        "(which averages Rollout over the layers that it ends at, too), the second the row of the answer's start and "
        "end",
        *_READINGS[:2],
    ),
)

PRECISION = CurveFigure(
    name="attcat-precision-at-k",
    paper=PAPER,
    title="Precision@K: answer tokens among the top K = 5, 10, 20, 30, 50, SQuAD v1 and v2, three architectures",
    columns=_QUESTIONS,
    rows=FIGURE_3.rows[:-1],
    measures=(RecipeMetric("Precision@K", "precision_at_k(k=5,10,20,30,50, measure=count)"),),
    notes=(
        "the paper has K = 20, and other K in an appendix that is not at hand; the number is the mean over these K",
        *FIGURE_3.notes[1:],
    ),
)

FIGURE_4 = LayerFigure(
    name="attcat-figure-4",
    paper=PAPER,
    title="Impact scores of each layer, their rollout and their sum",
    columns=_COLUMNS[:1],
    rows=(
        RecipeRow("Sum", "attcat(states=inputs, combine=sum)"),
        RecipeRow("Rollout", "attcat(states=inputs, combine=rollout)"),
    ),
    examples={
        "SST2": ("i really didn't like this movie some of the actors were good , but overall the movie was boring",)
    },
    essential=("Sum",),
    notes=(
        "the figure's text ('not' +0.72, 'like' -0.37) is not known in full: that of Figure 5b stands in",
        "all rows are on one scale, that of the scores themselves",
        "the paper finds deeper layers less impactful, and minimal scores in the rollout",
    ),
)

FIGURE_5 = MethodFigure(
    name="attcat-figure-5",
    paper=PAPER,
    title="(a) a question and its context, (b) one review by every method",
    columns=(RecipeColumn("SQuAD v1", "squad@attcat", "squad", _NAMED["squad"]), _COLUMNS[0]),
    rows=(
        *(RecipeRow(row.label, row.method, columns=("SST2",)) for row in (*_ATTENTION, *_OF_CLASSES[:-1])),
        RecipeRow("AttCAT", "attcat(states=inputs)"),
    ),
    examples={"SQuAD v1": (LookedUp("which nfl team represented the afc at super bowl 50 ?"),), **FIGURE_4.examples},
    notes=("the published answer to the question is 'denver broncos'", _READINGS[1]),
)

REPRODUCTIONS = (TABLE_1, TABLE_2, FIGURE_3, PRECISION, FIGURE_4, FIGURE_5)
