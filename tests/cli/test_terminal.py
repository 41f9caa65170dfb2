"""What reaches a terminal: nothing that steers it, in characters that it has; and how the command line ends."""

import io
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fcntl import ioctl
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

import whyformer
from tests.helpers.commands import Run
from tests.helpers.evaluated import in_order, own_registry, registered
from whyformer.cli import main
from whyformer.cli import process as streams
from whyformer.cli.process import interrupted
from whyformer.errors import WhyformerWarning
from whyformer.escapes import visible, visible_beside_colours, visible_json
from whyformer.evaluation.evaluate import Results
from whyformer.models.load import BUNDLED
from whyformer.prediction import Prediction
from whyformer.progress import counting, report
from whyformer.show.live import watching

TITLE = "\x1b]0;PWNED\x1b\\"  # sets the title of the window
EVIL = f"{TITLE}\x07\x9b2J\u202e"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model in a folder, and with labels, that would steer a terminal."""
    folder = tmp_path_factory.mktemp("models") / "evil\x1b[2J"
    shutil.copytree(BUNDLED / "sentiment", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "id2label": {0: "NO", 1: f"YES{EVIL}"}}))
    return folder


class Screen:
    """A terminal that remembers what it was sent."""

    def __init__(self, columns: int = 100) -> None:
        self.ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.file = os.fdopen(theirs, "w", encoding="utf-8")
        self._chunks: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self.ours, 4096):
                self._chunks.append(chunk)
        except OSError:  # Linux says so when the other side is closed
            return

    def received(self) -> str:
        self.file.close()
        self._reader.join()
        os.close(self.ours)
        return b"".join(self._chunks).decode().replace("\r\n", "\n")


def on_a_screen(monkeypatch: pytest.MonkeyPatch, *arguments: Any, columns: int = 100) -> str:
    screen = Screen(columns)
    with monkeypatch.context() as patched:
        patched.setenv("COLUMNS", str(columns))
        patched.setattr(sys, "stdout", screen.file)
        patched.setattr(sys, "stderr", screen.file)
        with pytest.raises(SystemExit):
            main([str(a) for a in arguments])
    return screen.received()


def assert_shown(text: str) -> None:
    """What steers is written out, and our colours alone are sent."""
    assert not STEERING.search(COLOUR.sub("", text))


def process(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command line of a shell, in which WHY is `python -m whyformer`."""
    command = command.replace("WHY", f"'{sys.executable}' -m whyformer")
    environment = {**os.environ, **environment}
    return subprocess.run(["sh", "-c", command], capture_output=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("character", "shown"),
    [
        *(("\x1b", r"\x1b"), ("\x07", r"\x07"), ("\r", r"\r"), ("\x7f", r"\x7f"), ("\x9b", r"\x9b")),
        *(("\u061c", r"\u061c"), ("\u200f", r"\u200f"), ("\u202e", r"\u202e"), ("\u2066", r"\u2066")),
        *(("\udce9", r"\udce9"), ("\n", "\n"), ("\t", "\t"), ("é", "é"), ("👍🏽", "👍🏽"), ("\u200d", "\u200d")),
    ],
)
def test_what_steers_a_terminal_is_written_out(character: str, shown: str) -> None:
    assert visible(f"a{character}b") == f"a{shown}b"
    assert visible_beside_colours(f"\x1b[1ma{character}b\x1b[0m") == f"\x1b[1ma{shown}b\x1b[0m"
    line = visible_json(json.dumps(f"a{character}b", ensure_ascii=False))
    assert json.loads(line) == f"a{character}b"
    assert not STEERING.search(line)


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "--method", "attcat"),
        ("explain", "--method", "attcat", "--words"),
        ("compare", "--methods", "attcat,rollout"),
        ("explain", "--json"),
        ("explain", "--target", "no\x1b[2J"),
        ("explain", "--device", "no\x1b[2J"),
        ("explain", "--html", "\x1b[2J/page.html"),
        ("explain", "--no\x1b[2J"),
    ],
    ids=lambda arguments: ascii(" ".join(arguments)),
)
@pytest.mark.parametrize("colours", [True, False])
def test_no_label_text_or_name_steers_a_terminal(
    arguments: tuple[str, ...], colours: bool, evil: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "" if colours else "1")
    command, *options = arguments
    received = on_a_screen(monkeypatch, command, f"a good {EVIL} film", "-m", evil, *options)
    assert_shown(received)
    assert re.search(r"\\(x1b|u001b)", received)


@pytest.mark.long
def test_a_whole_process_on_a_terminal(evil: Path) -> None:
    screen = Screen()
    command = [sys.executable, "-m", "whyformer", "compare", f"a {EVIL} film", "-m", str(evil), "--methods", "attcat"]
    done = subprocess.run(command, stdout=screen.file, stderr=screen.file, check=False)
    received = screen.received()
    assert done.returncode == 0
    assert_shown(received)
    assert COLOUR.search(received)


def test_no_name_in_a_file_steers_a_terminal(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("header.csv").write_text(f"{EVIL},x\na,1\n")
    Path("keys.jsonl").write_text(json.dumps({EVIL: "a"}, ensure_ascii=False) + "\n")
    for name in ("header.csv", "keys.jsonl", f"none{EVIL}.csv"):
        result = run("tokens", "-m", "sentiment", "--data", name)
        assert result.status == 2
        assert_shown(result.err)
        assert r"\x1b" in result.err

    name = f"data{EVIL}.jsonl"
    Path(name).write_text('{"text": "a good film"}\n{"text": "a bad film"}\n')
    chosen = ("--methods", "attcat", "--metrics", "token_overlap", "--out", "run")
    result = run("evaluate", "-m", "sentiment", "--data", name, *chosen)
    assert result.status == 0
    assert_shown(result.out + result.err)
    for form in ("text", "markdown", "csv", "latex"):
        assert_shown(run("report", "run", "--format", form).out)

    table = f"tables{EVIL}.json"
    for source in (("--from", "run"), ("--from", table)):
        for form in ("text", "markdown"):
            result = run("words", *source, "--format", form, "--out", table)
            assert result.status == 0
            assert_shown(result.out + result.err)


def test_no_method_of_another_hand_steers_a_terminal(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.jsonl").write_text('{"text": "a good film"}\n')
    evil = f"evil{EVIL}"
    with own_registry():
        monkeypatch.setattr(in_order, "__name__", evil)
        registered(in_order)
        chosen = ("--methods", evil, "--metrics", "sufficiency", "--out", tmp_path / "run")
        assert run("evaluate", "-m", "sentiment", "--data", tmp_path / "data.jsonl", *chosen).status == 0
    for form in ("text", "markdown", "csv", "latex"):
        result = run("report", tmp_path / "run", "--format", form)
        assert_shown(result.out)
        assert r"\x1b" in result.out.replace(r"\textbackslash{}", "\\")
    assert_shown(on_a_screen(monkeypatch, "report", tmp_path / "run"))


def test_no_description_steers_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen.file)
    with counting(f"[bold]{EVIL}"):
        report(0, 1000)
        time.sleep(0.01)
        report(1, 1000)
    with watching(2, Results(), f"[bold]{EVIL}") as advance:
        advance()
    received = screen.received()
    assert received.count(r"[bold]\x1b]0;PWNED") >= 2
    assert TITLE not in received
    assert "\x9b" not in received
    assert "\u202e" not in received


def test_colour_codes_are_for_terminals_that_have_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (("explain", "a good film", "--method", "attcat"), ("methods",)):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", "")
        assert "\x1b[" in on_a_screen(monkeypatch, *command)
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b" not in on_a_screen(monkeypatch, *command)
        monkeypatch.setenv("NO_COLOR", "")
        monkeypatch.setenv("TERM", "dumb")
        assert "\x1b" not in on_a_screen(monkeypatch, *command)


@pytest.mark.parametrize("columns", [1, 5, 40])
def test_a_narrow_terminal_still_has_words(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    listed, _, default = on_a_screen(monkeypatch, "methods", columns=columns).replace("\r", "").partition("\n\n")
    assert default.startswith("auto, the default, is ")
    assert [line.split()[0] for line in listed.splitlines()] == list(whyformer.list_methods())
    assert "gorgeous" in COLOUR.sub("", on_a_screen(monkeypatch, "explain", "a gorgeous film", columns=columns))


@contextmanager
def encoded(encoding: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.BytesIO]:
    """Standard output in an encoding."""
    held = io.BytesIO()
    stream = io.TextIOWrapper(held, encoding=encoding)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        patched.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        streams.open_streams()
        yield held


@pytest.mark.parametrize(("encoding", "bar", "name"), [("ascii", "#", r"caf\xe9"), ("latin-1", "#", "café")])
def test_what_a_stream_cannot_hold_is_written_legibly(
    encoding: str, bar: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with encoded(encoding, monkeypatch) as held:
        with pytest.raises(SystemExit, match="0"):
            main(["explain", "a good café… 电", "--method", "attcat"])
        out = held.getvalue().decode(encoding)
    assert bar * 20 in out
    assert f"\na good {name}... \\u7535<?>\n" in out
    with encoded(encoding, monkeypatch) as held:
        with pytest.raises(SystemExit, match="0"):
            main(["explain", "a good café… 电", "--method", "attcat", "--json"])
        assert json.loads(held.getvalue())["texts"] == ["a good café… 电"]
    with encoded(encoding, monkeypatch) as held:
        with pytest.raises(SystemExit, match="0"):
            main(["methods"])
        assert held.getvalue().startswith(b"method ")


@pytest.mark.long
def test_an_evaluation_is_printed_whatever_the_encoding(tmp_path: Path) -> None:
    data = os.fsencode(tmp_path) + b"/b\xe9d.csv"
    with open(data, "w") as file:  # noqa: PTH123  (its name is not UTF-8)
        file.write("text,label\na good film,POSITIVE\n")
    command = f"WHY evaluate -m sentiment --data {tmp_path}/b*.csv --methods attcat --metrics sufficiency"
    done = process(command, PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"sufficiency v (n = 1)" in done.stdout
    assert rb"b\udce9d.csv" in done.stdout


@pytest.mark.long
def test_closed_and_full_streams_are_one_line(tmp_path: Path) -> None:
    done = process("WHY --version >&-")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"standard output is closed" in done.stderr
    done = process("WHY --version > /dev/full")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"could not write to standard output: No space left on device" in done.stderr
    done = process("WHY --version 2>&-")
    assert (done.returncode, done.stdout) == (0, f"{version('whyformer')}\n".encode())
    done = process("WHY explain <&-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"whyformer: error: the text is empty\n"
    done = process("WHY --version | true")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_has_seen_enough_is_no_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    assert run("methods")[::2] == (1, "")


def test_nobody_listens(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    explanation = whyformer.Explainer.load("sentiment").explain("a good film", "attcat")
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert str(explanation).startswith("POSITIVE")


def test_the_version_is_told_at_once() -> None:
    done = process("WHY --version", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    assert done.stdout.decode() == version("whyformer") + "\n"
    assert not re.search(rb"\| +(torch|transformers|numpy|typer|rich)\b", done.stderr)


LISTENING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # as jobs in the background do not
)
MOMENTS = int(os.environ.get("MOMENTS", "6"))  # of Ctrl-C between the first line and 6 seconds later


@pytest.mark.long
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_is_one_line_whenever_it_comes(presses: int) -> None:
    code = f"{LISTENING}; from whyformer.cli import main; print('here', flush=True); main()"
    command = [sys.executable, "-c", code, "compare", "a film that never once bores", "--methods", "all", "--trust"]

    def pressed_at(moment: float) -> tuple[float, int, str]:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
            assert started.stdout is not None
            started.stdout.readline()
            time.sleep(moment)
            for _ in range(presses):
                started.send_signal(2)
                time.sleep(0.002)
            return moment, started.wait(), started.communicate()[1]

    moments = [0.05 + 6 * number / MOMENTS for number in range(presses - 1, MOMENTS, 2)]
    with ThreadPoolExecutor(2) as together:
        for moment, status, err in together.map(pressed_at, moments):
            *before, last = err.splitlines()
            assert (moment, status, last) == (moment, 130, "whyformer: interrupted")
            assert all(line.startswith("whyformer: warning: ") for line in before), err


def test_ctrl_c_that_was_lost_comes_again() -> None:
    code = f"""
{LISTENING}
import time
from whyformer.cli.process import CtrlC

class Lossy:
    def __del__(self):
        raise KeyboardInterrupt

CtrlC().raises()
start = time.monotonic()
try:
    Lossy()
    time.sleep(60)
except KeyboardInterrupt:
    print("raised" if time.monotonic() < start + 30 else "late")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "raised\n", "")


def test_ctrl_c_is_known_behind_other_exceptions() -> None:
    assert interrupted(KeyboardInterrupt())
    assert not interrupted(ValueError())
    wrapped = ImportError("initialization failed")
    wrapped.__cause__ = KeyboardInterrupt()
    assert interrupted(wrapped)


def test_ctrl_c_during_a_command_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("whyformer.cli.app.Loading.explainer", stop)
    assert run("explain", "a film") == (130, "", "whyformer: interrupted\n")


def test_a_bug_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"two\nlines{EVIL}")

    monkeypatch.setattr("whyformer.cli.app.Loading.explainer", broken)
    status, out, err = run("explain", "a film")
    assert (status, out) == (1, "")
    assert err.startswith("whyformer: internal error: RuntimeError: two lines")
    assert err.endswith("(run with --debug for the traceback, and please report it)\n")
    assert err.count("\n") == 1
    assert_shown(err)
    err = run("explain", "a film", "--debug").err
    assert err.startswith("Traceback (most recent call last)")
    assert_shown(err)

    monkeypatch.setattr("whyformer.cli.app.Loading.explainer", lambda *_, **__: bytearray(1 << 62))
    assert run("explain", "a film")[::2] == (
        2,
        "whyformer: error: not enough memory: a smaller batch, fewer steps or samples, or shorter texts take less\n",
    )


@pytest.mark.filterwarnings("default")
def test_all_our_warnings_are_shown_and_no_others(run: Run) -> None:
    class Odd(WhyformerWarning):
        pass

    def warning(prediction: Prediction) -> torch.Tensor:
        """A method that warns."""
        warnings.warn(f"this is odd{EVIL}", Odd, stacklevel=1)
        warnings.warn("not for users", DeprecationWarning, stacklevel=1)
        return in_order(prediction)

    with own_registry():
        registered(warning)
        err = run("explain", "a film", "--method", "warning").err
    assert err.startswith("whyformer: warning: this is odd\\x1b")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["heads", "--texts", "lines.txt", "--figure", "x.foo"], "'x.foo' is no picture"),
        (["heads", "--texts", "lines.txt", "--positions", "no/x.png"], "there is no folder 'no'"),
        (["heads", "--texts", "lines.txt", "--out", "."], "it is a folder"),
        (["heads", "--texts", "lines.txt", "--batch-size", "1" + "0" * 30], "--batch-size takes at most 100,000"),
        (["explain", "a film", "--html", "no/page.html"], "there is no folder 'no'"),
        (["compare", "a film", "--html", "no/page.html"], "there is no folder 'no'"),
        (["explain", "a film", "--batch-size", "1" + "0" * 30], "--batch-size takes at most 100,000"),
        (["explain", "a film", "--batch-size", "1" * 5000], "--batch-size"),
        (["words", "--data", "d.csv", "--top", "1000000000", "--overlap", "o.png"], "--top takes at most 2,000"),
        (["report", "run", "--html", "no/page.html"], "there is no folder 'no'"),
        (["explain", "a film", "--no-such-option-" + "x" * 9000], "No such option"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(
    arguments: list[str], said: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("whyformer.cli.app.Loading.explainer", lambda *_, **__: pytest.fail("a model was loaded"))
    Path("lines.txt").write_text("a film\n")
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert len(err) < 2100


def test_an_exception_that_leads_back_to_itself_is_no_ctrl_c() -> None:
    first, second = ValueError(), ValueError()
    first.__context__, second.__context__ = second, first
    assert not interrupted(first)
    second.__context__ = KeyboardInterrupt()
    assert interrupted(first)
