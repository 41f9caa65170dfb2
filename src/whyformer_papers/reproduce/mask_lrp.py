"""The tables and figures of Mask-LRP (Song et al. 2024)."""

from dataclasses import replace

from whyformer_papers.reproduce.head_figures import HeadGridFigure, PositionFigure
from whyformer_papers.reproduce.published import published
from whyformer_papers.reproduce.recipe import RecipeColumn, RecipeMetric, RecipeRow
from whyformer_papers.reproduce.tables import CurveFigure, TableRecipe
from whyformer_papers.reproduce.text_figures import DifferenceFigure

PAPER = "Mask-LRP (Song et al. 2024)"

_SST2 = RecipeColumn("SST-2", "sst2@mask_lrp", "sst2", "textattack/bert-base-uncased-SST-2", texts=872)
_IMDB = RecipeColumn("IMDB", "imdb@mask_lrp", "imdb", "textattack/bert-base-uncased-imdb", texts=25_000)
_YELP = RecipeColumn("Yelp", "yelp@mask_lrp", "yelp", "fabriceyhc/bert-base-uncased-yelp_polarity", texts=38_000)
_MNLI = RecipeColumn("MNLI", "mnli@mask_lrp", "nli", "textattack/bert-base-uncased-MNLI")
_QQP = RecipeColumn("QQP", "qqp@mask_lrp", "qqp", "modeltc/bert-base-uncased-qqp")

_RAW = RecipeRow("RawAtt", "raw_attention(layer=-1)")
_ROLLOUT = RecipeRow("Rollout", "rollout(row_normalised=true)")
_ATTCAT = RecipeRow("AttCAT", "attcat(states=inputs)", also=("attcat(states=outputs)",))


def _masked(label: str, options: str, runs: int = 1, at: float | None = None) -> RecipeRow:
    """A row of their method: as the authors' code has it, and as the paper writes it."""
    authors, paper = (f"mask_lrp({options}, variant={variant})" for variant in ("authors", "paper"))
    return RecipeRow(label, authors, also=(paper,), runs=runs, at=at)


_THEIRS = replace(_masked("theirs", "head_mask={heads}"), syntactic=True)
_BASELINES = (
    _RAW,
    _ROLLOUT,
    RecipeRow("LRP", "lrp(book=alpha_beta)"),
    RecipeRow("PartialLRP", "partial_lrp(book=alpha_beta)"),
    RecipeRow("GAE", "transformer_attribution(row_normalised=true)", also=("gae",)),
    RecipeRow("CAM", "grads(query=mean, positive=true)"),
    RecipeRow("GradCAM", "grad_cam(over=map)", also=("grads(times_attention=true)",)),
    _ATTCAT,
)
_RANDOM_MASK = _masked("Random mask", "head_mask=random, rate={rate}, seed={seed}", runs=5)

_AUTHORS = (
    RecipeMetric("AOPC", "aopc(hide=pad_attended, protocol=mask_lrp, target=gold)", protocol="mask_lrp"),
    RecipeMetric(
        "LOdds",
        "log_odds(hide=pad_attended, protocol=mask_lrp, target=gold)",
        higher_is_better=False,
        protocol="mask_lrp",
    ),
)
_MEASURES = (
    *_AUTHORS,
    RecipeMetric("AOPC, Eq. 12", "aopc(hide=pad_attended)", beside="AOPC"),
    RecipeMetric("LOdds, Eq. 13", "log_odds(hide=pad_attended)", higher_is_better=False, beside="LOdds"),
)
_CODE = (
    "the authors' code follows the gold label, takes [SEP] out of attention while it explains, and runs pairs without "
    "segment ids"
)
_SETTINGS = (
    f"both metrics replace tokens by [PAD]: in the nine steps of the authors' code; {_CODE}. By the equations: 0, 10, "
    "…, 100 % of the tokens, the predicted class. Texts of fewer than 20 tokens are left out",
    "rows of QQP and MNLI are kept if the gold class has a probability of at least 0.3 and 0.34 in the authors' run, "
    "the predicted class by the equations; the MNLI checkpoint has its classes in another order than the data set (0 "
    "is contradiction, 1 entailment, 2 neutral), and the code does not translate: the gold label names another class",
    "QQP: duplicates only; MNLI: matched only, as in the authors' code",
    "GAE is cited, but the authors' code runs transformer_attribution: both stand here; CAM and GradCAM are what the "
    "code computes under these names, the second reading of GradCAM is what the paper writes; so it is for AttCAT",
)
_MASKS = (
    "the paper takes its head masks from the statistics of the evaluated data set itself; in the authors' code the "
    "dependent looks at its head, a word is its first token, and special tokens count (--direction, --pieces and "
    "--special-tokens choose otherwise; the example of the paper has the head look at its dependent)"
)

TABLE_1 = TableRecipe(
    name="mask-lrp-table-1",
    paper=PAPER,
    title="AOPC and LOdds of every method on five data sets, BERT",
    columns=(_SST2, _IMDB, _YELP, _MNLI, _QQP),
    rows=(*_BASELINES, _RANDOM_MASK, _THEIRS),
    measures=_MEASURES,
    published=published("mask-lrp-table-1"),
    notes=(*_SETTINGS, _MASKS, "the paper claims 3.56 % better AOPC and LOdds"),
)

_GPT2 = "anas-awadalla/gpt2-span-head-finetuned-squad"
_QUESTIONS = (
    ("SQuAD v1, BERT", "squad", "csarron/bert-base-uncased-squad-v1"),
    ("SQuAD v1, GPT-2", "squad-gpt2", _GPT2),
    ("SQuAD v1, RoBERTa", "squad-roberta", "thatdramebaazguy/roberta-base-squad"),
    ("SQuAD v2, BERT", "squad_v2", "ericRosello/bert-base-uncased-finetuned-squad-frozen-v2"),
    ("SQuAD v2, GPT-2", "squad_v2-gpt2", _GPT2),
    ("SQuAD v2, RoBERTa", "squad_v2-roberta", "21iridescent/roberta-base-finetuned-squad2-lwt"),
)
_TEXTS = {"squad": 10_570, "squad_v2": 11_873}

TABLE_2 = TableRecipe(
    name="mask-lrp-table-2",
    paper=PAPER,
    title="Precision@20 on SQuAD v1 and v2, three architectures, percent",
    columns=tuple(
        RecipeColumn(label, f"{data}@mask_lrp", folder, model, label.partition(", ")[2], _TEXTS[data])
        for label, folder, model in _QUESTIONS
        for data in (folder.partition("-")[0],)
    ),
    rows=(
        RecipeRow("Rollout", "rollout(row_normalised=true, query=mean)", also=("rollout(row_normalised=true)",)),
        RecipeRow("RawAtt", "raw_attention(layer=-1, query=mean)", also=("raw_attention(layer=-1)",)),
        _ATTCAT,
        replace(_THEIRS, also=(*_THEIRS.also, "transformer_attribution(row_normalised=true)")),
    ),
    measures=(RecipeMetric("Precision@20", "precision_at_k(k=20, measure=ratio)", scale=100),),
    published=published("mask-lrp-table-2"),
    notes=(
        "the mean count of answer tokens among the top 20, divided by the mean answer length",
        "the answer of the model is explained; questions without an answer are left out; of a context that does not "
        "fit the window of the best answer is explained, and answer tokens outside of it are missed",
        "the first reading of RawAtt and Rollout is the mean over all queries: the paper writes so of RawAtt, and the "
        "authors' code does so for both; the second is the row of the answer's start and end",
        "the authors' code for answers does not hand the mask to the method: the third reading of theirs has none",
        "the authors' code keeps only the answer's row of relevance and broadcasts it over all positions: not repeated",
        _MASKS,
        "the paper claims 33.02 % better Precision@20",
    ),
)

TABLE_3 = TableRecipe(
    name="mask-lrp-table-3",
    paper=PAPER,
    title="Ablations: without the positional, without the syntactic mask",
    columns=(_SST2, _QQP),
    rows=(
        _THEIRS,
        _masked("without M_pos", "head_mask={heads}, only=syntactic"),
        _masked("without M_synt", "head_mask={heads}, only=positional"),
    ),
    measures=_MEASURES,
    published=published("mask-lrp-table-3"),
    notes=(*_SETTINGS[:3], _MASKS),
)

TABLE_4 = TableRecipe(
    name="mask-lrp-table-4",
    paper=PAPER,
    title="ALTI beside their method",
    columns=(_SST2, _IMDB, _YELP),
    rows=(RecipeRow("ALTI", "alti(distance_offset=1e-6)"), _THEIRS),
    measures=_MEASURES,
    published=published("mask-lrp-table-4"),
    notes=(_SETTINGS[0], "their own numbers are those of Table 1; the table calls ALTI ALTC", _MASKS),
)

FIGURE_1 = PositionFigure(
    name="mask-lrp-figure-1",
    paper=PAPER,
    title="Where dependents stand: relative positions of nsubj, dobj, amod and advmod",
    columns=(_SST2,),
    rows=(),
    notes=(
        "places are counted in words from the head: the subject before its verb has a negative one",
        "the paper finds the highest share of a relation almost always below 0.7",
    ),
)

FIGURE_3 = CurveFigure(
    name="mask-lrp-figure-3",
    paper=PAPER,
    title="AOPC and LOdds against the share of hidden tokens on SST-2",
    columns=(_SST2,),
    rows=(*_BASELINES, _THEIRS),
    measures=_AUTHORS,
    published={
        key: number for key, number in TABLE_1.published.items() if key[0] != "Random mask" and key[1] == "SST-2"
    },
    notes=("the curves are not published as numbers: their means stand in Table 1", *_SETTINGS[::3], _MASKS),
)


def _corrupted(percent: int) -> RecipeRow:
    drawn = "" if percent in (0, 100) else ", seed={seed}"
    more = f", corrupted={percent / 100:g}{drawn}" if percent else ""
    return _masked(f"{percent} %", f"head_mask={{heads}}{more}", runs=5 if drawn else 1, at=percent / 100)


_UNMASKED = RecipeRow("GAE", "transformer_attribution(row_normalised=true)", also=("transformer_attribution",))

FIGURE_4 = CurveFigure(
    name="mask-lrp-figure-4",
    paper=PAPER,
    title="The scores while 10, …, 100 % of the mask's zeros are switched on",
    columns=(_SST2,),
    rows=(*map(_corrupted, range(0, 101, 10)), _UNMASKED),
    measures=_AUTHORS,
    over="share of the mask's zeros that are switched on",
    notes=(
        "the curves are not published as numbers",
        "which zeros are switched on is drawn at random, by five seeds; by one seed, a higher rate adds to a lower one",
        "with all heads, variant=paper is transformer_attribution, which the paper calls GAE; the authors' code then "
        "still scores twice the relevance, so its scores differ a little",
        *_SETTINGS[:1],
        _MASKS,
    ),
)

FIGURE_5 = HeadGridFigure(
    name="mask-lrp-figure-5",
    paper=PAPER,
    title="Which heads of which blocks are positional and syntactic",
    columns=(_SST2, _IMDB, _YELP, _MNLI, _QQP),
    rows=(),
    notes=(
        "blocks and heads are counted from 0; a head may be of several kinds",
        "the paper claims: positional heads early, syntactic heads late, few heads on IMDB and Yelp",
        _MASKS,
    ),
)

FIGURE_6 = DifferenceFigure(
    name="mask-lrp-figure-6",
    paper=PAPER,
    title="Token by token, where their scores are higher and lower than each baseline's (with Figures 7-13)",
    columns=(_SST2, _MNLI, _IMDB, _YELP),
    rows=(*_BASELINES, RecipeRow("theirs", _THEIRS.method, syntactic=True)),
    examples={"SST-2": ("it 's a charming and often affecting journey .",)},
    essential=("theirs",),
    notes=(
        "the sentence of Figure 6 is the one of SST-2 that has its words; the texts of Figures 7-13 are not known: of "
        "MNLI, IMDB and Yelp the first text of each gold class stands in that has at most 64 tokens and that the model "
        "classifies right",
        "scores are divided by the sum of their sizes over the units that are not special; blue is where theirs are "
        "higher, orange where they are lower, all rows on one scale",
        _MASKS,
    ),
)

REPRODUCTIONS = (TABLE_1, TABLE_2, TABLE_3, TABLE_4, FIGURE_1, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_6)
