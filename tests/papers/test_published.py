"""The numbers that the papers print: copied right, possible, and won by the paper's own method."""

from pathlib import Path

import pytest

from whyformer_papers.reproduce import Number, RecipeMetric, Reproduction, published, reproduction_named, reproductions
from whyformer_papers.reproduce.decoded_tokens import NOTHING, SHARED_TOKENS
from whyformer_papers.reproduce.tables import TableRecipe

COUNTS = {  # cells with a number in each table, counted in the papers
    "attcat-table-1": 8 * 6 * 2,
    "attcat-table-2": 6 * 6,
    "attcat-figure-3": 2,
    "transformer-attribution-table-1": 6 * 4 - 4,
    "transformer-attribution-table-2": 6 * 3,
    "transformer-attribution-table-3": 4 * 5,
    "mask-lrp-table-1": 10 * 5 * 2,
    "mask-lrp-table-2": 4 * 6,
    "mask-lrp-table-3": 3 * 2 * 2,
    "mask-lrp-table-4": 2 * 3 * 2,
    "decoded-table-1": 9 * 2,
    "decoded-table-2": 12 * 2,
    "decoded-tables-3-9": 7 * 4,
}
COPIED = {  # from the papers, independently of the file
    ("attcat-table-1", "RawAtt", "SST2", "AOPC"): 0.331,
    ("attcat-table-1", "Rollout", "MNLI", "LOdds"): 0.321,
    ("attcat-table-1", "Grads", "Amazon", "LOdds"): -1.820,
    ("attcat-table-1", "PartialLRP", "Yelp", "AOPC"): 0.424,
    ("attcat-table-1", "CAT", "IMDB", "LOdds"): -3.052,
    ("attcat-table-1", "AttCAT", "IMDB", "AOPC"): 0.528,
    ("attcat-table-2", "TransAtt", "QQP", "Kendall"): 0.222,
    ("attcat-table-2", "AttCAT", "Yelp", "Kendall"): 0.008,
    ("attcat-figure-3", "attainable", "SQuAD v1, RoBERTa", "Precision@20"): 3.72,
    ("attcat-figure-3", "attainable", "SQuAD v2, BERT", "Precision@20"): 3.84,
    ("transformer-attribution-table-1", "theirs", "ImageNet", "negative, target"): 55.04,
    ("transformer-attribution-table-1", "LRP", "ImageNet", "positive, predicted"): 41.94,
    ("transformer-attribution-table-2", "GradCAM", "ImageNet-Segmentation", "mAP"): 71.60,
    ("transformer-attribution-table-3", "block B-1", "ImageNet", "positive, predicted"): 27.33,
    ("transformer-attribution-table-3", "without ∇A", "ImageNet-Segmentation", "mIoU"): 59.88,
    ("mask-lrp-table-1", "LRP", "Yelp", "AOPC"): 0.163,
    ("mask-lrp-table-1", "CAM", "QQP", "LOdds"): -5.988,
    ("mask-lrp-table-1", "GradCAM", "IMDB", "LOdds"): -0.974,
    ("mask-lrp-table-2", "RawAtt", "SQuAD v2, BERT", "Precision@20"): 4.69,
    ("mask-lrp-table-2", "theirs", "SQuAD v1, RoBERTa", "Precision@20"): 67.31,
    ("mask-lrp-table-3", "without M_synt", "QQP", "LOdds"): -5.998,
    ("mask-lrp-table-4", "ALTI", "IMDB", "LOdds"): -0.748,
    ("decoded-table-1", "decoded l7", "SST-2", "revealing"): 0.867,
    ("decoded-table-1", "Simple", "SST-2", "hiding"): 0.756,
    ("decoded-table-2", "Shapley", "AG News", "hiding"): 0.567,
    ("decoded-table-2", "DeepLiftShap", "AG News", "revealing"): 0.823,
    ("decoded-figure-9", "Shapley", "AG News", "top 50"): 13.0,
    ("decoded-tables-3-9", "decoded l6", "AG News", "top 50"): 10 / 6,
    ("decoded-figure-9", "Occlusion", "AG News", "top 50"): 20.0,
    ("decoded-tables-3-9", "Integrated, 25 steps", "AG News", "top 50"): 89 / 6,
    ("decoded-tables-3-9", "Smooth", "SST-2", "top 50"): 6.0,
}
WINNERS = {
    "attcat-table-1": "AttCAT",
    "attcat-table-2": "AttCAT",
    "transformer-attribution-table-1": "theirs",
    "transformer-attribution-table-2": "theirs",
    "mask-lrp-table-1": "theirs",
    "mask-lrp-table-2": "theirs",
    "mask-lrp-table-4": "theirs",
    "decoded-table-1": "decoded l7",
    "decoded-table-2": "Shapley",
}
OTHER_WINNERS = {
    ("attcat-table-1", "QQP", "AOPC"): "TransAtt",
    ("attcat-table-2", "QQP", "Kendall"): "AttGrads",
    ("mask-lrp-table-1", "Yelp", "LOdds"): "AttCAT",
}
PAIRS = ("World", "Sports", "Business", "Sci/Tech")


def test_every_cell_is_there() -> None:
    assert {name: len(numbers) for name, numbers in published.tables().items()} == COUNTS
    assert set(COUNTS) <= set(reproductions())


def test_numbers_are_those_of_the_papers() -> None:
    found = {key: reproduction_named(key[0]).published[key[1:]] for key in COPIED}
    assert found == {key: Number(value) for key, value in COPIED.items()}


def test_spreads() -> None:
    numbers = published.published("mask-lrp-table-1")
    assert numbers["Random mask", "MNLI", "LOdds"] == Number(-0.415, 0.021)
    with_spread = {
        (name, row)
        for name, numbers in published.tables().items()
        for (row, _, _), number in numbers.items()
        if number.spread is not None
    }
    assert with_spread == {("mask-lrp-table-1", "Random mask")}


def test_labels_are_those_of_the_recipe() -> None:
    for name, recipe in reproductions().items():
        rows, columns, measures = ({part.label for part in p} for p in (recipe.rows, recipe.columns, recipe.measures))
        for row, column, measure in recipe.published:
            assert (row in rows, column in columns, measure in measures) == (True, True, True), (name, row, column)


def test_tables_have_a_number_for_each_method() -> None:
    for name, recipe in reproductions().items():
        main = [measure.label for measure in main_measures(recipe)]
        if type(recipe) is TableRecipe:
            assert {measure.beside for measure in recipe.measures} <= {None, *main}, name
            if "image" not in recipe.columns[0].data:  # there, methods without a target have gaps, and priors no number
                full = {(r.label, c.label, label) for c in recipe.columns for r in recipe.rows_in(c) for label in main}
                assert set(recipe.published) == full, name


def test_numbers_are_possible() -> None:
    limits = {"LOdds": (-10, 1), "Kendall": (-1, 1), "Precision@20": (0, 100)}
    for name, recipe in reproductions().items():
        scale = {measure.label: measure.scale for measure in recipe.measures}
        for key, number in recipe.published.items():
            low, high = limits.get(key[2], (0, scale[key[2]]))
            assert low <= number.value <= high, (name, *key)


def test_the_winner_of_each_paper_wins() -> None:
    for name, winner in WINNERS.items():
        recipe = reproduction_named(name)
        for column in recipe.columns:
            for measure in main_measures(recipe):
                expected = OTHER_WINNERS.get((name, column.label, measure.label), winner)
                assert best(recipe, column.label, measure) == expected, (name, column.label, measure.label)


def main_measures(recipe: Reproduction) -> list[RecipeMetric]:
    return [measure for measure in recipe.measures if measure.beside is None]


def best(recipe: Reproduction, column: str, measure: RecipeMetric) -> str:
    values = {r: n.value for (r, c, label), n in recipe.published.items() if (c, label) == (column, measure.label)}
    return (max if measure.higher_is_better else min)(values, key=lambda row: values[row])


def test_tables_of_one_paper_agree() -> None:
    first, third, fourth = (published.published(f"mask-lrp-table-{n}") for n in (1, 3, 4))
    for table in (third, fourth):
        same = {key: number for key, number in table.items() if key[0] == "theirs"}
        assert same == {key: first[key] for key in same}
    curves = reproduction_named("mask-lrp-figure-3").published
    assert len(curves) == 2 * 9
    assert curves.items() <= first.items()


def test_counts_are_those_of_the_printed_tokens() -> None:
    printed = {}
    for (row, column, pair), tokens in SHARED_TOKENS.items():
        classes = column if column == "SST-2" else " and ".join(PAIRS[place] for place in pair)
        printed[row, classes, "top 50"] = Number(0 if tokens == NOTHING else len(tokens.split(", ")))
    assert published.published("decoded-tables-3-9") == printed


def test_a_number_that_stands_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "published.csv"
    lines = ["table,row,column,measure,value,spread", "t,r,c,m,0.5,.01", "t,r,c,n,-1,"]
    monkeypatch.setattr(published, "FILE", file)
    file.write_text("\n".join(lines))
    assert published.tables.__wrapped__() == {"t": {("r", "c", "m"): (0.5, 0.01), ("r", "c", "n"): (-1.0, None)}}
    file.write_text("\n".join([*lines, "t,r,c,m,0.6,"]))
    with pytest.raises(ValueError, match=r"published\.csv has two numbers for r, c, m of t"):
        published.tables.__wrapped__()
