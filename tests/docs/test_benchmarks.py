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
from tests.helpers import cases, evaluated, token_outputs
from tests.helpers.conllu import ENGLISH
from whyformer import Explainer

ROOT = Path(__file__).parents[2]
SHARED = {"cost/timing.py"}
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
}
SLOW = {"cost/evaluation.py", "cost/explain.py"}  # longer than three seconds


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of tiny models and a few rows of data, as the scripts want them."""
    folder = tmp_path_factory.mktemp("benchmarks")
    subject = cases.subject(labels=2)
    copy.deepcopy(subject.model).float().save_pretrained(folder / "models" / "sst2")
    subject.tokenizer.save_pretrained(folder / "models" / "sst2")
    (folder / "treebank").mkdir()
    (folder / "treebank" / "en_ewt-ud-dev.conllu").write_text("\n".join([*ENGLISH, "", ""]) * 5)
    masked = token_outputs.explainer("masked_word", "bert").subject
    copy.deepcopy(masked.model).float().save_pretrained(folder / "models" / "mlm")
    masked.tokenizer.save_pretrained(folder / "models" / "mlm")
    language = token_outputs.explainer("next_token", "gpt2").subject
    copy.deepcopy(language.model).float().save_pretrained(folder / "models" / "lm")
    language.tokenizer.save_pretrained(folder / "models" / "lm")
    (folder / "texts.txt").write_text("\n".join(cases.TEXTS))
    (folder / "texts.csv").write_text("\n".join(["text", *(json.dumps(text) for text in cases.TEXTS)]))
    places = {"models": "models", "treebank": "treebank", "texts": "texts"}
    return {name: str(folder / place) for name, place in places.items()}


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


@pytest.mark.parametrize("script", [*SCRIPTS, *HELP_ONLY])
def test_help(script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        run(script, "--help", monkeypatch)
    assert f"python benchmarks/{script}" in capsys.readouterr().out


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
@pytest.mark.parametrize("script", ["cost/explain.py"])
def test_scripts_run_from_a_clone(script: str, tmp_path: Path) -> None:
    """As a plain script, in another folder: they find what they share."""
    command = [sys.executable, ROOT / "benchmarks" / script, "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python benchmarks/{script}" in done.stdout
