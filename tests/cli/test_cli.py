"""The command line, as people and pipes use it: what it prints, where, and how it fails."""

import importlib.metadata
import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import whyformer
from tests.helpers.commands import Result, Run
from whyformer.cli import main
from whyformer.methods.default import AUTO
from whyformer.models.load import BUNDLED

TEXT = "a gorgeous, witty film that didn't bore me"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from whyformer.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def configure(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def save(model: hf.PreTrainedModel, folder: Path) -> None:
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLED / "sentiment" / name, folder)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny classifier of three classes and the tokenizer of the bundled model."""
    torch.manual_seed(3)
    config = hf.BertConfig(
        vocab_size=12000,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=24,
        id2label={0: "no", 1: "maybe", 2: "yes"},
    )
    model = hf.BertForSequenceClassification(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    folder = tmp_path_factory.mktemp("models") / "pairs"
    save(model, folder)
    return folder


def weigh(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def as_pickle(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def with_code(folder: Path) -> None:
    configure(folder, model_type="homemade", auto_map={"AutoConfig": "homemade.Config"})
    (folder / "homemade.py").write_text("raise SystemExit('the code was run')")


def attention_free(folder: Path) -> None:
    config = hf.FNetConfig(
        vocab_size=12000, hidden_size=16, num_hidden_layers=1, intermediate_size=16, use_tpu_fourier_optimizations=False
    )
    save(hf.FNetForSequenceClassification(config), folder)


SPOILED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no-config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "no-weights": (lambda f: (f / "model.safetensors").unlink(), "has no weights"),
    "no-tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer"),
    "pickle": (as_pickle, "only in pickle files .*--allow-pickle"),
    "code": (with_code, "comes with its own code.*--trust-remote-code"),
    "pretraining": (
        lambda f: configure(f, architectures=["BertForPreTraining"]),
        "holds BertForPreTraining; .*…ForQuestionAnswering",
    ),
    "headless": (lambda f: weigh(f, lambda w: w.pop("classifier.weight")), "classifier.weight would be random"),
    "nan": (lambda f: weigh(f, lambda w: w["classifier.bias"].fill_(torch.nan)), "logits that are not numbers"),
    "attention-free": (attention_free, "no rule for FftC2C"),
    "torn": (lambda f: (f / "model.safetensors").write_bytes(b"torn"), "could not load"),
    "misfit": (lambda f: configure(f, intermediate_size=8), "could not load|not complete"),
}


@pytest.fixture
def spoiled(pairs: Path, tmp_path: Path) -> Callable[[str], Path]:
    def spoil(name: str) -> Path:
        shutil.copytree(pairs, tmp_path / name)
        SPOILED[name][0](tmp_path / name)
        return tmp_path / name

    return spoil


def assert_one_line(result: Result, pattern: str) -> None:
    assert result.status == 2
    assert result.err.count("\n") == 1
    assert re.match(r"whyformer: error: \S", result.err)
    assert re.search(pattern, result.err)
    assert "Traceback" not in result.err + result.out


def test_explain_a_text(run: Run) -> None:
    status, out, err = run("explain", TEXT)
    assert (status, err) == (0, "")
    assert out.startswith("POSITIVE ")
    assert "why POSITIVE?" in out
    assert f"\n{TEXT}\n" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("argument", [[], ["-"]], ids=["left out", "-"])
def test_explain_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch, argument: list[str]) -> None:
    expected = run("explain", TEXT).out
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TEXT}\n"))
    assert run("explain", *argument) == (0, expected, "")


def test_explain_each_line_of_a_file(run: Run, tmp_path: Path) -> None:
    lines = ["a good film", "an awful bore", TEXT]
    (tmp_path / "texts").write_text("\n".join(lines) + "\n")
    expected = "\n".join(run("explain", line).out for line in lines)
    assert run("explain", "-m", "sentiment", "--file", tmp_path / "texts", "--batch-size", 1) == (0, expected, "")


def test_json_is_one_object_for_each_line(run: Run, tmp_path: Path) -> None:
    lines = ["a good film", "an awful bore"]
    (tmp_path / "texts").write_text("\n".join(lines))
    status, out, _ = run("explain", "-m", "sentiment", "--file", tmp_path / "texts", "--json")
    assert status == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert [f["texts"] for f in found] == [[line] for line in lines]
    for data, line in zip(found, lines, strict=True):
        assert data["schema"] == "whyformer/explanation"
        tokens = [u for u in data["units"] if not u["special"]]
        assert [line[slice(*u["span"])] for u in tokens] == [u["text"] for u in tokens] == line.split()
        expected = whyformer.Explainer.load("sentiment").explain(line)
        assert [u["score"] for u in data["units"]] == pytest.approx(expected.scores.tolist(), abs=1e-5)


def test_explain_a_pair(run: Run, pairs: Path) -> None:
    arguments = ("explain", "is it good", "--pair", "it is bad", "-m", pairs)
    data = json.loads(run(*arguments, "--json").out)
    assert data["texts"] == ["is it good", "it is bad"]
    assert [u["part"] for u in data["units"]] == [None, 0, 0, 0, None, 1, 1, 1, None]
    assert "\n(1) is it good\n(2) it is bad\n" in run(*arguments).out


def test_whole_words(run: Run) -> None:
    data = json.loads(run("explain", TEXT, "--words", "--json").out)
    assert {u["kind"] for u in data["units"]} == {"word"}
    assert "didn't" in [u["text"] for u in data["units"]]


@pytest.mark.parametrize("target", ["maybe", "MAYBE", "1"])
def test_target_and_versus(run: Run, pairs: Path, target: str) -> None:
    data = json.loads(run("explain", TEXT, "-m", pairs, "--target", target, "--versus", "no", "--json").out)
    assert data["target"] == {"index": 1, "name": "maybe"}
    assert data["versus"] == {"index": 0, "name": "no"}
    one, other = (
        json.loads(run("explain", TEXT, "-m", pairs, "--target", name, "--explains", "logit", "--json").out)
        for name in ("maybe", "no")
    )
    difference = [a["score"] - b["score"] for a, b in zip(one["units"], other["units"], strict=True)]
    assert [u["score"] for u in data["units"]] == pytest.approx(difference, abs=1e-5 * max(map(abs, difference)))
    assert "why maybe rather than no?" in run("explain", TEXT, "-m", pairs, "--target", target, "--versus", "no").out


def test_options_of_the_method(run: Run, pairs: Path) -> None:
    plain, changed = (
        json.loads(run("explain", TEXT, "-m", pairs, "--method", "attcat", "--json", *more).out)
        for more in ([], ["--states", "inputs"])
    )
    assert (plain["options"], changed["options"]) == ({}, {"states": "inputs"})
    expected = whyformer.Explainer.load(pairs).explain(TEXT, "attcat", states="inputs")
    scores = [u["score"] for u in changed["units"]]
    assert scores == pytest.approx(expected.scores.tolist(), abs=1e-6)
    assert scores != pytest.approx([u["score"] for u in plain["units"]], abs=1e-3)


@pytest.mark.parametrize("command", ["explain", "compare"])
def test_a_page_is_written_and_announced(run: Run, pairs: Path, tmp_path: Path, command: str) -> None:
    page = tmp_path / "page.html"
    status, out, err = run(command, TEXT, "-m", pairs, "--html", page)
    assert (status, err) == (0, f"whyformer: wrote {page}\n")
    assert out
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("names", ["attcat,rollout", "rollout, attcat", "all", "fast"])
def test_compare(run: Run, pairs: Path, names: str) -> None:
    every = {
        "all": [n for n, m in whyformer.list_methods().items() if not m.images_only],
        "fast": [n for n, m in whyformer.list_methods().items() if m.passes == "one" and not m.images_only],
    }
    expected = every.get(names) or [n.strip() for n in names.split(",")]
    status, out, err = run("compare", TEXT, "-m", pairs, "--methods", names)
    assert status == 0
    assert all(line.startswith("whyformer: warning: ") for line in err.splitlines())
    assert ("deep_lift_shap: the scores add up to" in err) == (names == "all")
    if names in every:
        expected.remove("decoded_grad_cam")  # refused: it has no LM head
        expected.remove("mask_lrp")  # refused: nobody has looked at this model's heads
        assert re.search(r"mask_lrp\W.*whyformer\s+heads", out, re.DOTALL)
    rows = re.findall(r"^(\w+)(?:\([^)]*\))? +a gorgeous", out, re.MULTILINE)
    if names in every:  # those that agree come first, and the baseline last
        assert sorted(rows) == expected
        assert rows[-1] == "random"
        expected = rows
    assert rows == expected
    lines = run("compare", TEXT, "-m", pairs, "--methods", names, "--json", "--words").out.splitlines()
    assert [json.loads(line)["method"] for line in lines] == expected
    assert {u["kind"] for line in lines for u in json.loads(line)["units"]} == {"word"}


def test_methods_are_listed(run: Run) -> None:
    status, out, _ = run("methods")
    assert status == 0
    listed, _, default = out.partition("\n\n")
    assert re.findall(r"^([a-z_]+)\b(?! +family)", listed, re.MULTILINE) == list(whyformer.list_methods())
    assert default.startswith(f"auto, the default, is {AUTO} for texts, ")
    status, described, _ = run("methods", "auto")
    assert status == 0
    assert described.startswith(default)
    assert described.endswith(run("methods", AUTO).out)


def test_a_method_is_described_with_its_options(run: Run) -> None:
    status, out, _ = run("methods", "attcat")
    assert status == 0
    assert out.startswith("attcat: Activation times gradient")
    assert "Qiang et al. 2022" in out
    for option in whyformer.list_methods()["attcat"].options.values():
        assert f"{option.flag} {option.takes} (default {option.default})" in out


def test_version(run: Run) -> None:
    assert run("--version") == (0, importlib.metadata.version("whyformer") + "\n", "")


def test_without_arguments_help_is_shown(run: Run) -> None:
    result = run()
    assert "explain" in result.out + result.err
    assert "error: \n" not in result.err


def through_a_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """What a terminal receives; a thread reads it, because the terminal's buffer is small."""
    ours, theirs = pty.openpty()
    received: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(ours, 4096):
                received.append(chunk)
        except OSError:  # Linux says so when the other side is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    with open(theirs, "w", encoding="utf-8") as terminal, monkeypatch.context() as patched:  # noqa: PTH123
        patched.setattr(sys, "stdout", terminal)
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
    reader.join()
    os.close(ours)
    assert stopped.value.code == 0
    return b"".join(received).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", ["explain", "compare"])
def test_colours_are_for_terminals(run: Run, monkeypatch: pytest.MonkeyPatch, pairs: Path, command: str) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    chosen = {"explain": ("--method", "attcat"), "compare": ("--methods", "attcat,rollout")}[command]
    arguments = (command, TEXT, "-m", str(pairs), *chosen)
    plain = run(*arguments).out
    coloured = through_a_terminal(monkeypatch, *arguments)
    assert "\x1b[" not in plain
    assert len(set(re.findall(r"48;2;\d+;\d+;\d+", coloured))) > 3
    assert ESCAPES.sub("", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert through_a_terminal(monkeypatch, *arguments) == plain


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["explain", ""], "the text is empty"),
        (["explain", " \n "], "the text is empty"),
        (["explain", TEXT, "--pair", " "], "a text of the pair is empty"),
        (["explain", TEXT, "--target", "positve"], "'positve' is no label .*NEGATIVE, POSITIVE"),
        (["explain", TEXT, "--target", "7"], "target 7 .*0 = NEGATIVE, 1 = POSITIVE"),
        (["explain", TEXT, "--target", "²"], "'?²'? is no (label|class) of this model"),
        (["explain", TEXT, "--versus", "neutral"], "'neutral' is no label"),
        (["explain", TEXT, "--method", "atcat"], "no method 'atcat'; did you mean 'attcat'"),
        (["compare", TEXT, "--methods", "attcat,rolout"], "no method 'rolout'; did you mean 'rollout'"),
        (["methods", "atcat"], "did you mean 'attcat'"),
        (["explain", TEXT, "--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
        (["explain", TEXT, "--method", "attcat", "--samples", "3"], "attcat has no option 'samples'"),
        (
            ["explain", TEXT, "--method", "attcat", "--states", "middle"],
            "--states takes outputs | inputs; found 'middle'",
        ),
        (["explain", TEXT, "--method", "random", "--seed", "x"], "--seed takes a whole number; found 'x'"),
        (["explain", TEXT, "--batch-size", "0"], "batch_size takes a whole number from 1 on"),
        (["explain", TEXT, "--batch-size", "x"], "batch-size"),
        (["explain", TEXT, "--dtype", "int8"], "dtype 'int8' is not known"),
        (["explain", TEXT, "--device", "nonsense"], "nonsense"),
        (["explain", TEXT, "-m", "/no/such/folder"], "there is no folder '/no/such/folder'"),
        (["explain", TEXT, "-m", "./no-such-folder"], "there is no folder './no-such-folder'"),
        (["explain", TEXT, "-m", "no-such-model"], "could not load 'no-such-model'"),
        (["explain", "--file", "/no/such/file"], "could not read the file '/no/such/file'"),
        (["explain", TEXT, "--file", "/no/such/file"], "--file stands alone"),
        (["explain", TEXT, "--html", "/no/such/folder/page.html"], "could not write '/no/such/folder/page.html'"),
        (["compare", TEXT, "--html", "/no/such/folder/page.html"], "could not write '/no/such/folder/page.html'"),
        (["explain", "broken \udcff text"], "text"),
    ],
    ids=lambda value: ascii(" ".join(value[-2:]).replace(TEXT, "")) if isinstance(value, list) else "",
)
def test_an_error_is_one_line(run: Run, arguments: list[str], pattern: str) -> None:
    assert_one_line(run(*arguments), pattern)


@pytest.mark.parametrize("name", SPOILED)
def test_a_folder_that_cannot_be_used_is_one_line(run: Run, spoiled: Callable[[str], Path], name: str) -> None:
    result = run("explain", TEXT, "-m", spoiled(name))
    if name == "attention-free":  # its output depends on padding, which a warning says first
        warning, line_end, error = result.err.partition("\n")
        assert "depends on padding" in warning + line_end
        result = result._replace(err=error)
    assert_one_line(result, SPOILED[name][1])


def test_an_empty_line_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("good\n\nbad\n")
    assert_one_line(run("explain", "--file", tmp_path / "texts"), "line 2 of .* is empty")
    (tmp_path / "texts").write_text("")
    assert_one_line(run("explain", "--file", tmp_path / "texts"), "holds no text")


def test_a_person_who_gives_no_text_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert_one_line(run("explain"), "no text: give it")


def test_pickle_and_code_are_run_if_asked_for(run: Run, spoiled: Callable[[str], Path], pairs: Path) -> None:
    status, out, _ = run("explain", TEXT, "-m", spoiled("pickle"), "--allow-pickle")
    assert status == 0
    assert out.splitlines()[4:] == run("explain", TEXT, "-m", pairs).out.splitlines()[4:]
    with pytest.raises(SystemExit, match="the code was run"):
        main(["explain", TEXT, "-m", str(spoiled("code")), "--trust-remote-code"])


def test_debug_shows_the_traceback(run: Run) -> None:
    status, out, err = run("explain", TEXT, "--target", "neutral", "--debug")
    assert (status, out) == (2, "")
    assert err.startswith("Traceback (most recent call last)")
    assert err.splitlines()[-1].startswith("whyformer: error: target 'neutral'")


def test_truncation_is_seen_on_standard_error(run: Run, pairs: Path) -> None:
    status, out, err = run("explain", " ".join(["film"] * 30), "-m", pairs)
    assert status == 0
    assert err == "whyformer: warning: 32 tokens, but the model's window holds 24: 8 were dropped\n"
    assert "8 tokens did not fit" in out


@pytest.mark.long
@pytest.mark.parametrize("name", [None, "headless"])
def test_the_command_in_a_process_of_its_own(run: Run, spoiled: Callable[[str], Path], name: str | None) -> None:
    """Here the log of transformers, which a test in this process does not see, would be on standard error too."""
    if name is None:
        expected = run("explain", TEXT)
        done = process("explain", TEXT)
        assert (done.returncode, done.stdout, done.stderr) == expected
    else:
        done = process("explain", TEXT, "-m", str(spoiled(name)))
        assert_one_line(Result(done.returncode, done.stdout, done.stderr), SPOILED[name][1])
