"""Result tables: studies are measured by the command, written as CSV files, and summarized in pages."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers import image_cases
from tests.helpers.rows import write_jsonl
from whyformer import Explainer, WhyformerError, open_dataset
from whyformer_papers.results import STUDIES, SUMMARIES, checked, two_images, write_summaries
from whyformer_papers.results.__main__ import main
from whyformer_papers.results.rows import Row, read_rows, write_rows
from whyformer_papers.results.studies import ONE_PASS
from whyformer_papers.results.study import HEADS, LM_HEAD, RATE
from whyformer_papers.results.summaries import MOST_ROWS, NOTHING

DOCS = Path(__file__).parents[2] / "docs"
TEXTS = ("a gorgeous and witty film", "a dull and lifeless mess", "not bad at all")
ROW = Row(
    study="sst2", model="sst2", data="sst2", method="", metric="aopc", mean=0.5, low=0.4, high=0.6, n=9, better=""
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two studies that take seconds."""
    methods, metrics = ("random", "random(seed=1)", "gae", "attn_lrp"), ("aopc", "sufficiency")
    sst2 = replace(STUDIES["sst2"], methods=methods, metrics=metrics, ceiling=1)
    signs = replace(STUDIES["signs-sst2-logit"], methods=("attn_lrp", "lime"))
    for study in (sst2, signs):
        monkeypatch.setitem(STUDIES, study.name, study)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the data of SST-2."""
    rows = [{"sentence": text, "label": number % 2} for number, text in enumerate(TEXTS)]
    write_jsonl(tmp_path / "data" / "sst2" / "validation.jsonl", rows)
    return tmp_path


def run(folder: Path, *more: str) -> int:
    places = [part for name in ("data", "out", "tables") for part in (f"--{name}", str(folder / name))]
    return main([*places, "--limit", "2", "--commit", "abc", *more])


@pytest.mark.usefixtures("small")
def test_a_study_becomes_a_csv_file(folder: Path) -> None:
    assert run(folder, "--only", "sst2") == 0
    rows = read_rows(folder / "tables" / "sst2.csv")
    assert {row.method for row in rows} == {"random", "gae", "attn_lrp", "chance", "ceiling"}
    assert [row.seed for row in rows if row.method == "random" and row.metric == "aopc"] == ["0", "1"]
    assert {row.better for row in rows if row.metric == "sufficiency"} == {"lower"}
    assert [row.rank for row in rows if row.metric == "aopc"].count("best") == 1
    row = next(row for row in rows if (row.method, row.metric) == ("attn_lrp", "aopc"))
    assert (row.study, row.model, row.data, row.n, row.quantity) == ("sst2", "sst2", "sst2/validation", 2, "logit")
    assert row.low <= row.mean <= row.high
    assert row.commit == "abc"
    assert row.command.endswith("--only sst2 --limit 2")
    assert str(folder) not in (folder / "tables" / "sst2.csv").read_text()


@pytest.mark.usefixtures("small")
def test_a_run_resumes_and_keeps_its_date(folder: Path) -> None:
    assert run(folder, "--only", "sst2") == 0
    facts = folder / "out" / "sst2" / "run.json"
    kept = json.loads(facts.read_text())
    kept["run"]["date"] = "2001-01-01"
    facts.write_text(json.dumps(kept))
    before = (folder / "out" / "sst2" / "journal.jsonl").read_bytes()
    assert run(folder, "--only", "sst2") == 0
    assert (folder / "out" / "sst2" / "journal.jsonl").read_bytes() == before
    written = (folder / "tables" / "sst2.csv").read_bytes()
    (folder / "tables" / "sst2.csv").unlink()
    shutil.rmtree(folder / "data")
    assert run(folder, "--only", "sst2", "--tables-only") == 0
    assert (folder / "tables" / "sst2.csv").read_bytes() == written
    assert {row.date for row in read_rows(folder / "tables" / "sst2.csv")} == {"2001-01-01"}


@pytest.mark.usefixtures("small")
def test_a_missing_model_is_left_out_with_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--models", str(folder), "--only", "agnews,sst2".replace("agnews", "ag_news")) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "whyformer: ag_news: left out: there is no folder 'agnews' below --models"
    assert (folder / "tables" / "sst2.csv").is_file()
    assert not (folder / "tables" / "ag_news.csv").exists()
    assert run(folder, "--only", "ag_news", "--tables-only") == 1


@pytest.mark.usefixtures("small")
def test_signs_have_shares_of_checked_words(folder: Path) -> None:
    assert run(folder, "--only", "signs-sst2-logit") == 0
    rows = {(row.method, row.metric): row for row in read_rows(folder / "tables" / "signs-sst2-logit.csv")}
    assert {metric for _, metric in rows} == {*checked.MEASURES, "sign_agreement", "sign_agreement(hide=mask)", "aopc"}
    assert rows["lime", "aopc"].samples == "auto"
    assert rows["attn_lrp", "marked_words"].quantity == "logit"


def test_checked_words_are_counted() -> None:
    """One agrees, one is neutral when masked, one is marked and disagrees, one hardly matters."""
    deleted = {"signs": [1, 1, 1, -1], "effects": [0.5, 0.5, -0.5, 0.05]}
    masked = {"signs": [1, 1, 1, -1], "effects": [0.5, 0.05, 0.5, 0.5]}
    assert checked._counts(deleted, masked) == ((1, 2), (1, 4), (1, 4))


def test_methods_are_written_without_files() -> None:
    study = replace(STUDIES["masks-sst2"], lm_head="base-mlm")
    values = {HEADS: "/here/heads.json", RATE: "0.180556", LM_HEAD: "/here/base-mlm"}
    assert "{" not in "".join(study.filled(values))
    label = "mask_lrp(head_mask=/here/heads.json, variant=authors)"
    assert study.unfilled(label, values) == "mask_lrp(head_mask=treebank, variant=authors)"


def test_two_images_have_their_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image_cases.save(tmp_path / "models" / "vit-pets")
    image_cases.write(tmp_path / "data" / "pets" / "test.parquet")
    study = replace(STUDIES["two_pets"], methods=("rollout", "attcat(book=attn)"))
    monkeypatch.setitem(STUDIES, study.name, study)
    assert run(tmp_path, "--models", str(tmp_path / "models"), "--only", "two_pets") == 0
    rows = {row.method: row for row in read_rows(tmp_path / "tables" / "two_pets.csv") if "top" not in row.metric}
    assert (rows["rollout"].mean, rows["rollout"].n) == (pytest.approx(0.5), 2)
    assert set(rows) == set(study.methods)
    explainer = Explainer.load(tmp_path / "models" / "vit-pets")
    data = open_dataset(tmp_path / "data" / "pets", split="test", labels=explainer.subject.labels)
    with pytest.raises(WhyformerError, match="holds 2 pairs, not 1"):
        two_images.measure(replace(study, limit=1), explainer, data, tmp_path / "out" / "two_pets")


def test_wrong_options_end_with_status_2(tmp_path: Path) -> None:
    for arguments in ([], ["--out", str(tmp_path)], ["--out", str(tmp_path), "--only", "nothing", "--tables-only"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2


def test_csv_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [replace(ROW, method="gae"), replace(ROW, method="attcat(layer=1, book=attn)", share=0.25, samples="auto")]
    write_rows(rows, tmp_path / "sst2.csv")
    assert str(read_rows(tmp_path / "sst2.csv")) == str(rows)
    (tmp_path / "sst2.csv").write_text("study,model\nsst2,sst2\n")
    with pytest.raises(WhyformerError, match="no column 'data'"):
        read_rows(tmp_path / "sst2.csv")


def test_summaries_are_written_between_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n<!-- results: attainable -->\nold\n<!-- end -->\n\n<!-- results: aopc -->\n<!-- end -->\nB\n"
    )
    assert write_summaries(tmp_path) == [page]
    assert page.read_text().count(NOTHING) == 2
    means = {"random": 0.2, "layer_lrp": 0.6, "gae": 0.5}
    rows = [replace(ROW, method=name, mean=mean, share=mean / 2, better="higher") for name, mean in means.items()]
    rows = [replace(row, rank="best" if row.mean == 0.6 else "", machine="a GPU", commit="abc") for row in rows]
    write_rows(rows, tmp_path / "results" / "sst2.csv")
    write_summaries(tmp_path)
    text = page.read_text()
    assert "| `layer_lrp` | **0.600** | – |" in text
    assert "| `gae` | 0.250 | – |" in text
    assert "[sst2](results/sst2.csv) (n = 9). a GPU; , abc." in text
    assert text.endswith("<!-- end -->\nB\n")
    before = page.read_bytes()
    write_summaries(tmp_path)
    assert page.read_bytes() == before
    page.write_text("<!-- results: nothing -->\n<!-- end -->\n")
    with pytest.raises(WhyformerError, match="wants the summary 'nothing'"):
        write_summaries(tmp_path)


def test_the_worst_case_is_of_the_worst_metric(tmp_path: Path) -> None:
    means = {"aopc": (0.0, 1.0, 0.9), "log_odds": (0.0, -1.0, -2.0), "comprehensiveness": (0.0, 1.0, 1.0)}
    means["sufficiency"] = (1.0, 0.0, 0.0)
    rows = [
        replace(
            ROW, method=method, metric=metric, mean=mean, better="lower" if mean < 0 or max(each) == each[0] else ""
        )
        for metric, each in means.items()
        for method, mean in zip(("random", "layer_lrp", "gae"), each, strict=True)
    ]
    text = SUMMARIES["worst-case"].table({"sst2": rows})
    assert text.splitlines()[2:] == ["| `gae` | 10.0 | 10.0 |", "| `layer_lrp` | 50.0 | 50.0 |"]


def test_studies_and_summaries_fit() -> None:
    assert all(name == study.name for name, study in STUDIES.items())
    assert {study for summary in SUMMARIES.values() for study in summary.studies} <= set(STUDIES)
    assert all(len(getattr(summary, "methods", ())) <= MOST_ROWS for summary in SUMMARIES.values())
    assert {"layer_lrp", "attn_lrp"} < set(ONE_PASS)


def test_pages_are_what_the_csv_files_give(tmp_path: Path) -> None:
    pages = [page for page in DOCS.rglob("*.md") if "<!-- results: " in page.read_text(encoding="utf-8")]
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.png"))
    assert {page.name for page in write_summaries(tmp_path / "docs")} == {page.name for page in pages}
    for page in pages:
        assert (tmp_path / "docs" / page.relative_to(DOCS)).read_bytes() == page.read_bytes(), page.name
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [name for name in SUMMARIES if f"<!-- results: {name} -->" not in shown] == []
