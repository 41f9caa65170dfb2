"""Every script of `benchmarks/` runs, at a tiny size: what it prints has the rows that were asked for."""

import copy
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.cost import leaks, peers, timing
from benchmarks.tables import mnli_labels
from tests.helpers import cases, evaluated, image_cases, token_outputs
from tests.helpers.conllu import ENGLISH
from tests.helpers.rows import write_jsonl
from whyformer import Explainer
from whyformer.datasets import open_dataset
from whyformer.models.loading import Subject, load

ROOT = Path(__file__).parents[2]
SHARED = {"cost/timing.py", "tables/shared.py"}
HELP_ONLY = ("cost/peers.py",)  # a run starts four processes
TINY = "--layers 1 --tokens 8 --batches 1 --rounds 1"
SCRIPTS = {  # what each is given, and what it prints
    "cost/evaluation.py": (
        "--texts {texts}.csv --model {models}/sst2 --limit 2",
        ["numbers agree within ", "| evaluate |"],
    ),
    "cost/explain.py": (
        f"{TINY} --imports 0 --methods 'rollout,attcat(states=inputs, book=attn)'",
        [
            *("BERT of 1 layer, batch 1, 8 tokens, float32 on cpu, ", ", 1 rounds\n", "| forward + backward "),
            *("| `rollout` ", "| `attcat(states=inputs, book=attn)` "),
        ],
    ),
    "cost/leaks.py": (
        "--texts 20 --methods attn_lrp,gae --bound 1e9",
        ["       20 explanations: process ", "20 explanations by attn_lrp,gae in ", "within the bound of 1e+09"],
    ),
    "experiments/next_token.py": (
        "--model {models}/lm --data {texts}.csv --rows 0,2 --limit 2",
        ["by default layer_lrp(book=attn)", "## everyday, 2 prompts", "| `layer_lrp(book=attn)` | log_odds | "],
    ),
    "experiments/pos_tagger.py": (
        "--model {models}/mlm --data {treebank} --out {out} --steps 2 --batch 2 --device cpu",
        ["step 2/2  loss ", "on 1 held-out sentences"],
    ),
    "experiments/shortcuts.py": (
        "--out {out} --steps 1",
        ["600 rows: whyformer tokens --model ", "400 rows: whyformer tokens --model "],
    ),
    "tables/decoded.py": (
        "--models {models} --data {data} --out {out} --only sst2 --part shapley",
        ["## sst2-shapley: ", "shapley_value_sampling"],
    ),
    "tables/layered.py": (
        "--models {models} --data {data} --out {out} --only sst2,sst2-steps --limit 2 --no-ceiling "
        "--metrics aopc,comprehensiveness,sufficiency,log_odds",
        ["## sst2: ", "## sst2-steps: ", "`layer_lrp`", "`stepwise(of=layer_lrp, steps=10)`"],
    ),
    "tables/masks.py": ("cost --models {models} --data {data} --rounds 1", ["forward passes ", "ratio "]),
    "tables/mnli_labels.py": (
        "--models {models} --data {data} --out {out}",
        ["## attcat-table-1, MNLI", "| 0.164 | ", "## mask-lrp-table-1, MNLI", "| rank correlation | ", "are measured"],
    ),
    "tables/results.py": (
        "--models {models} --data {data} --out {out} --only sst2,ag_news,movies",
        ["## sst2: ", "## ag_news: ", "attcat", "## movies: "],
    ),
    "tables/signs.py": (
        "--models {models} --data {data} --out {out} --only sst2,mnli --limit 3 --methods "
        "'attn_lrp,attcat(states=inputs),occlusion'",
        ["## sst2-logit: ", "## sst2-runner_up: ", "## mnli-log_odds: ", "sign_agreement(hide=mask)"],
    ),
    "tables/stepwise.py": ("--models {models} --data {data} --out {out} --only movies", ["## movies: ", "token_f1"]),
    "tables/twelve_layers.py": (
        "--models {twelve} --data {twelve} --out {out} --epochs 1 --batch 2 --limit 2 --seeds 1 "
        "--recipes decoded-table-1",
        ["epoch 1, step ", "validation_accuracy", "Grad-CAM l0", "transformer_attribution(block=3)"],
    ),
    "tables/two_pets.py": (
        "--model {models}/vit-pets --data {data}/pets --out {out} --pairs 3 --methods 'rollout,attcat(book=attn)'",
        ["3 pairs; of ", "| `rollout` | 50.0 [50.0, 50.0] |", "| `attcat(book=attn)` | "],
    ),
    "tables/vision.py": (
        "--models {models} --data {data} --out {out} --only pets,tiny_imagenet --limit 3 --methods centre,gae",
        ["## pets: ", "mean_iou", "## tiny_imagenet: ", "`gae`"],
    ),
}
SUMMARIES = {  # of what the first has measured
    "tables/layered.py": [
        *("## SST-2", "## SST-2, in steps", "| `layer_lrp` is better by | passes | than `attn_lrp` | than `cp_lrp` |"),
        *("| SST-2, in steps, `aopc` | 10 | ", "| % behind the best, worst metric | SST-2 | mean of all | worst |"),
    ],
    "tables/results.py": [
        *("## Behind the best", "% behind the best", "## Beside the published numbers"),
        *("`token_f1` ↑ | k = 10 |", "`token_f1(window=inside)` ↑ | k = 10 |"),
    ],
    "tables/signs.py": [
        *("## SST-2, 3 texts", "| `aopc` | `logit` | `log_odds` | `runner_up` |", "checked = masking, %"),
        *("## Candidates for the default", "| `occlusion`, log_odds | – | – | "),
    ],
    "tables/stepwise.py": ["## Movie Reviews", "## Steps beside one pass"],
    "tables/vision.py": ["### Pets, 400 images with masks: pixel_accuracy", "### Tiny-ImageNet, 1,000 images: "],
}
SLOW = {  # longer than three seconds
    *("cost/evaluation.py", "cost/explain.py", "tables/layered.py", "tables/mnli_labels.py", "tables/results.py"),
    *("tables/signs.py", "tables/stepwise.py", "tables/vision.py"),
}
NLI = ("entailment", "neutral", "contradiction")
PAIR = ("the film is a fine film, and the actors like it", "the film is not bad at all")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of tiny models and a few rows of data, as the scripts want them."""
    folder = tmp_path_factory.mktemp("benchmarks")
    for name, labels in (("sst2", 2), ("agnews", 4), ("imdb", 2)):
        subject = cases.subject(labels=labels)
        copy.deepcopy(subject.model).float().save_pretrained(folder / "models" / name)
        subject.tokenizer.save_pretrained(folder / "models" / name)
    save_nli(folder / "models" / "nli", NLI)
    for name, data in (("vit-pets", "pets"), ("vit-tiny-imagenet", "tiny_imagenet")):
        image_cases.save(folder / "models" / name)
        image_cases.write(folder / "data" / data / "test.parquet")
    write_jsonl(folder / "data" / "mnli.jsonl", [pair(label) for label in range(3)])
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(cases.TEXTS)]
    for name in ("sst2", "ag_news"):
        write_jsonl(folder / "data" / f"{name}.jsonl", rows)
    marked = [{"tokens": ["a", "bad", "film"], "rationale": [0, 1, 0], "label": 0}]
    write_jsonl(folder / "data" / "eraser_movies.jsonl", marked * 2)
    (folder / "data" / "ud_en_ewt").mkdir()
    (folder / "data" / "ud_en_ewt" / "en_ewt-ud-dev.conllu").write_text("\n".join([*ENGLISH, "", ""]))
    (folder / "treebank").mkdir()
    (folder / "treebank" / "en_ewt-ud-dev.conllu").write_text("\n".join([*ENGLISH, "", ""]) * 5)
    masked = token_outputs.explainer("masked_word", "bert").subject
    copy.deepcopy(masked.model).float().save_pretrained(folder / "models" / "mlm")
    masked.tokenizer.save_pretrained(folder / "models" / "mlm")
    copy.deepcopy(masked.model).float().save_pretrained(folder / "twelve" / "base-mlm")
    masked.tokenizer.save_pretrained(folder / "twelve" / "base-mlm")
    for split in ("train", "validation"):
        write_jsonl(
            folder / "twelve" / "sst2" / f"{split}.jsonl", [{"sentence": r["text"], "label": r["label"]} for r in rows]
        )
    language = token_outputs.explainer("next_token", "gpt2").subject
    copy.deepcopy(language.model).float().save_pretrained(folder / "models" / "lm")
    language.tokenizer.save_pretrained(folder / "models" / "lm")
    (folder / "texts.txt").write_text("\n".join(cases.TEXTS))
    (folder / "texts.csv").write_text("\n".join(["text", *(json.dumps(text) for text in cases.TEXTS)]))
    places = {"models": "models", "data": "data", "treebank": "treebank", "texts": "texts"}
    places |= {"twelve": "twelve"}
    return {name: str(folder / place) for name, place in places.items()}


def save_nli(folder: Path, labels: tuple[str, ...]) -> Subject:
    """A model of pairs that is sure of what it says, so that it finds one class probable and the others not."""
    subject = cases.subject(labels=3)
    model = copy.deepcopy(subject.model).float()
    model.classifier.weight.data *= 30
    model.bert.embeddings.token_type_embeddings.weight.data.zero_()  # it says the same without segment ids
    model.config.id2label = dict(enumerate(labels))
    model.save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    return load(folder)


def pair(label: int) -> dict[str, str | int]:
    return {"premise": PAIR[0], "hypothesis": PAIR[1], "label": label}


def run(script: str, arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module(f"benchmarks.{script.removesuffix('.py').replace('/', '.')}")
    monkeypatch.setattr(sys, "argv", [script, *shlex.split(arguments)])
    main: Callable[[], None] = module.main
    main()


def test_every_script_is_run_by_a_test() -> None:
    files = (ROOT / "benchmarks").rglob("*.py")
    names = {file.relative_to(ROOT / "benchmarks").as_posix() for file in files if file.name != "__init__.py"}
    assert names == {*SCRIPTS, *HELP_ONLY, *SHARED}


@pytest.mark.parametrize("script", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SCRIPTS])
def test_scripts_run(
    script: str,
    places: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, expected = SCRIPTS[script]
    with evaluated.own_registry():
        run(script, arguments.format(**places, out=tmp_path / "out"), monkeypatch)
    printed = capsys.readouterr().out
    assert [words for words in expected if words not in printed] == []
    if script in SUMMARIES:
        run(script, f"--out {tmp_path / 'out'} --summary", monkeypatch)
        printed = capsys.readouterr().out
        assert [words for words in SUMMARIES[script] if words not in printed] == []


@pytest.mark.parametrize("script", [*SCRIPTS, *HELP_ONLY])
def test_help(script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        run(script, "--help", monkeypatch)
    assert f"python benchmarks/{script}" in capsys.readouterr().out


def test_labels_are_read_as_the_checkpoint_has_its_classes(tmp_path: Path) -> None:
    """What GLUE calls entailment is contradiction there, neutral is entailment, and contradiction neutral."""
    write_jsonl(tmp_path / "mnli.jsonl", [pair(label) for label in (0, 1, 2, -1, 0)])
    written = mnli_labels.translated(open_dataset(tmp_path / "mnli.jsonl", labels=NLI), tmp_path / "out" / "read.jsonl")
    assert [json.loads(line) for line in written.read_text().splitlines()] == [pair(label) for label in (2, 0, 1, 2)]


@pytest.mark.slow
def test_accuracy_is_against_the_labels_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nli = save_nli(tmp_path / "models" / "nli", NLI)
    said = int(nli.model(**nli.tokenizer(*PAIR, return_tensors="pt")).logits.argmax())
    other = (said + 1) % 3  # its label is read as what the model says, as each is read as the class before it
    write_jsonl(tmp_path / "data" / "mnli.jsonl", [pair(label) for label in (said, other, other, other)])
    places = f"--models {tmp_path / 'models'} --data {tmp_path / 'data'} --out {tmp_path / 'out'}"
    for more in ("", " --summary"):
        with evaluated.own_registry():
            run("tables/mnli_labels.py", f"{places} --only attcat-table-1{more}", monkeypatch)
        printed = capsys.readouterr().out
        assert "- GLUE's labels: the model is right on 25.0 % of 4 texts, of which 4 are measured" in printed
        assert "- labels as the checkpoint reads them: the model is right on 75.0 % of 4 texts" in printed


def test_labels_are_not_translated_for_classes_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_nli(tmp_path / "nli", ("contradiction", "entailment", "neutral"))
    with pytest.raises(SystemExit, match=r"in this order; .*nli has contradiction, entailment, neutral: name its"):
        run("tables/mnli_labels.py", f"--models {tmp_path} --data {tmp_path} --out {tmp_path / 'out'}", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--kind llama --methods layer_lrp", ["Llama (small) of 1 layer, batch 1, 8 tokens", "| `layer_lrp` "]),
        ("--pixels 32 --methods rollout,attcat", ["ViT of 1 layer, batch 1, 32 pixels", "\nrefused: attcat\n"]),
        ("--methods 'all that share a trace'", ["BERT of 1 layer", "| all that share a trace (21) "]),
        ("--rounds 1000 --seconds 0.5 --methods rollout", [" of 1000 rounds\n"]),
        ("--what stepwise", ["| `stepwise(of=attn_lrp, steps=10)` "]),
        ("--what checking", ["| `attn_lrp`, check=0 ", "| `attn_lrp`, check=10 "]),
        ("--what decoded", ["| `decoded_grad_cam(layers=all)` "]),
        ("--what prefixes --kind llama", ["of the tokens are run, scores differ by ", "`, inputs run whole | "]),
    ],
)
def test_costs_of_other_models(
    options: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kinds of models, what they refuse, and a limit on time; each line has its ratio, interval and memory."""
    run("cost/explain.py", f"{TINY} --imports 0 {options}", monkeypatch)
    printed = capsys.readouterr().out
    assert [words for words in expected if words not in printed] == []
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in printed.splitlines() if row.startswith("| ")]
    assert rows[0] == ["", "ms", "÷ f+b", "÷ f", "MiB", "÷ f+b"]
    assert (rows[2][0], rows[2][2], rows[2][5]) == ("forward + backward", "1.00", "1.00")
    for _, ms, ratio, beside_forward, mebibytes, beside_plain in (rows[1], *rows[3:]):
        low, high = map(float, ratio.partition(" ")[2].strip("[]").split(", "))
        assert low <= high
        assert min(map(float, (ms, ratio.split()[0], beside_forward, mebibytes, beside_plain))) > 0


@pytest.mark.parametrize(
    "options", ["--what checking --kind llama", "--what decoded --pixels 32", "--what prefixes --kind bert"]
)
def test_costs_that_a_kind_of_model_does_not_have(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("cost/explain.py", options, monkeypatch)


def test_intervals_draw_rounds_for_all_samples_at_once() -> None:
    """A machine that is slow in some rounds does not widen the ratio of what it slows alike."""
    slow = [1.0, 3.0] * 8
    assert timing.interval(timing.ratio, [[2 * each for each in slow], slow], 2) == "[2.00, 2.00]"
    assert timing.interval(timing.ratio, [slow, slow[:-1]], 2) == "[0.33, 3.00]"


def test_a_slope_is_what_is_left_behind(capsys: pytest.CaptureFixture[str]) -> None:
    """Growth in the first half of the moments is none of it."""
    done = [100 * moment for moment in range(1, leaks.MOMENTS + 1)]
    full = [5e8 + 1e5 * min(moment, leaks.MOMENTS // 2) for moment in range(leaks.MOMENTS)]
    assert leaks.verdict(done, full, "process", leaks.BOUND)
    assert not leaks.verdict(done, [5e8 + 150 * count for count in done], "GPU", leaks.BOUND)
    assert capsys.readouterr().out.splitlines() == [
        "process: +0.0 [+0.0, +0.0] bytes an explanation, within the bound of 100",
        "GPU: +150.0 [+150.0, +150.0] bytes an explanation, ABOVE the bound of 100",
    ]


def test_what_leaks_ends_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(leaks, "held", lambda device: {"process": 1000.0 * len(kept)})
    explain = Explainer.explain
    monkeypatch.setattr(Explainer, "explain", lambda *args, **kw: kept.append(explain(*args, **kw)))
    with pytest.raises(SystemExit, match="1"):
        run("cost/leaks.py", "--texts 20 --methods gae", monkeypatch)


def test_scores_of_two_peers_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the worst text of each case that both have."""
    scores = [[1.0, -2.0, 0.5, 4.0], [3.0, 1.0, 2.0, 0.0]]
    moved = [[1.0, -2.0, 0.6, 4.0], [3.0, 2.0, 1.0, 0.0]]
    save_scores(tmp_path / "one.json", {"llama: attn_lrp": scores, "llama: alone": scores})
    save_scores(tmp_path / "other.json", {"llama: attn_lrp": moved, "bert: alone": moved})
    run("cost/peers.py", f"compare {tmp_path / 'one.json'} {tmp_path / 'other.json'}", monkeypatch)
    printed = capsys.readouterr().out
    assert printed.startswith("versions of one\nversions of other\n")
    assert printed.splitlines()[-1].split() == ["llama:", "attn_lrp", "0.800000", "3.3e-01"]
    assert "alone" not in printed


def save_scores(file: Path, scores: dict[str, list[list[float]]]) -> None:
    file.write_text(json.dumps({"versions": f"versions of {file.stem}", "scores": scores}))


@pytest.mark.parametrize("build", [peers.by_stock, peers.by_whyformer])
@pytest.mark.parametrize("size", ["llama", "bert-base"])
def test_peers_score_each_token(build: Callable[..., peers.Call], size: str) -> None:
    case = peers.Case(size, layers=1, tokens=8, batch=2, device="cpu", dtype="float32")
    scores = build(case, "input_x_gradient")()
    assert scores.shape == (2, 8)
    assert scores.isfinite().all()


@pytest.mark.slow
def test_a_peer_that_does_not_run_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it said last stands in the table, beside what was measured."""
    (tmp_path / "inseq.py").write_text("raise ImportError('a name that is gone')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    case = peers.Case("llama", layers=1, tokens=8, batch=1, device="cpu", dtype="float32")
    with (
        peers.worker("inseq", "input_x_gradient", case) as asked,
        pytest.raises(peers.DoesNotRun, match="ImportError: a name that is gone") as said,
    ):
        asked.ask("seconds")
    peers.print_table({peers.STOCK: peers.Measured([1.0], [1.0], 2.0, []), "input_x_gradient": str(said.value)})
    printed = capsys.readouterr().out.splitlines()
    assert " ".join(printed[-2].split()) == "forward + backward 1000.0 [1000.0, 1000.0] 1.00 1.00 2.0 1.00 1"
    assert printed[-1].split(maxsplit=1) == ["input_x_gradient", "does not run: ImportError: a name that is gone"]


@pytest.mark.slow
@pytest.mark.parametrize("script", ["cost/explain.py", "tables/results.py"])
def test_scripts_run_from_a_clone(script: str, tmp_path: Path) -> None:
    """As a plain script, in another folder: they find what they share."""
    command = [sys.executable, ROOT / "benchmarks" / script, "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python benchmarks/{script}" in done.stdout
