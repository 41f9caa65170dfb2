"""Run a command line as a process: standard streams, Ctrl-C and errors, each reported in one line."""

import codecs
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from whyformer.errors import BadInput, WhyformerError
from whyformer.escapes import escaped, visible, visible_beside_colours, visible_json
from whyformer.progress import tell

STATUS = 130
SOON = 0.01  # seconds


class CtrlC:
    """What Ctrl-C does to this process: it ends it, it raises KeyboardInterrupt, or it comes too late.

    A process that was started to ignore Ctrl-C goes on ignoring it.
    """

    def __init__(self) -> None:
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._ours = in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def ends(self) -> None:
        """End at once: what is imported from C may lose an exception, and nothing is lost without one."""
        self._do(_end)

    def raises(self) -> None:
        """Raise, so that work in progress is kept; again if the exception was lost in a place that cannot raise."""
        self._do(signal.default_int_handler)
        if self._ours:
            sys.unraisablehook = _raise_again

    def comes_too_late(self) -> None:
        """Ignore it: all is said, and the process is about to end."""
        self._do(signal.SIG_IGN)

    def _do(self, action: Any) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, action)


def interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what an exception comes from: some packages make others of it."""
    seen: set[int] = set()  # what an exception comes from may lead back to itself
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _end(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):
        os.write(2, b"whyformer: interrupted\n")
    os._exit(STATUS)


def _raise_again(lost: "sys.UnraisableHookArgs") -> None:
    if isinstance(lost.exc_value, KeyboardInterrupt):
        main = threading.main_thread().ident
        threading.Timer(SOON, signal.pthread_kill, [main, signal.SIGINT]).start()  # here it would be lost again
    else:
        sys.__unraisablehook__(lost)


LONGEST = 2000  # characters of a remark
SINGLE = dict(zip("█░▓┃│◆─━↑↓≈×−·–—‘’“”⟨⟩", "#.:||o--^v~x----''\"\"<>", strict=True))
PLAIN = SINGLE | {"→": "->", "±": "+-", "…": "..."}  # for streams that do not know them


def put(text: str, *, coloured: bool = False) -> None:
    """Print a result on standard output; `coloured`: colour codes in it are ours."""
    _write((visible_beside_colours if coloured else visible)(text))


def put_json(data: Mapping[str, Any]) -> None:
    """Print data as one line of JSON, in the characters that standard output takes."""
    text = visible_json(json.dumps(data, ensure_ascii=False))
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(data)
    _write(text)


def say(text: str) -> None:
    """Tell something about the run, in one line on standard error."""
    line = " ".join(text.split())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    tell(line)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # whoever was reading has seen enough
        raise
    except OSError as error:
        raise BadInput(f"could not write to standard output: {error.strerror}") from error


def open_streams() -> None:
    """Make the process's standard streams ready: none is missing, and no character is too much for them."""
    for name, mode in (("stdin", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  (to the end)
    if sys.stdout is None:
        raise BadInput("standard output is closed, so there is no place for results: > /dev/null throws them away")
    codecs.register_error("whyformer", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="whyformer")


def close_streams() -> None:
    """Throw away what standard output did not take, or else Python would try again, and complain, when it ends."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plainer(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that a stream cannot hold."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(PLAIN.get(character) or escaped(character) for character in characters), error.end


def run_process() -> int:
    """Run the command line of this process: Ctrl-C and the standard streams are ours to the end."""
    ctrl_c = CtrlC()
    ctrl_c.ends()
    status = run(sys.argv[1:], ctrl_c)
    ctrl_c.comes_too_late()
    close_streams()
    return status


def run(arguments: list[str], process: CtrlC | None = None) -> int:
    """The exit status of a command line: 2 for an error, which is one line on standard error, and 1 for a bug."""
    debug = "--debug" in arguments
    try:
        return _run([a for a in arguments if a != "--debug"] or ["--help"], process)
    except BrokenPipeError:  # whoever was reading has seen enough
        return 1
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (a bug is one line, too)
        if process is not None:
            process.comes_too_late()
        if interrupted(error):
            say("interrupted")
            return STATUS
        if debug:
            import traceback

            sys.stderr.write(visible(traceback.format_exc()))
        return _report(error)


def _report(error: BaseException) -> int:
    """Tell what went wrong, in one line; the exit status."""
    if isinstance(error, WhyformerError | OSError):
        say(f"error: {error}")
        return 2
    if isinstance(error, MemoryError):
        say("error: not enough memory: a smaller batch, fewer steps or samples, or shorter texts take less")
        return 2
    kind = type(error).__name__
    say(f"internal error: {kind}: {error} (run with --debug for the traceback, and please report it)")
    return 1


def _run(arguments: list[str], process: CtrlC | None) -> int:
    if process is not None:
        open_streams()
    if arguments[0] == "--version":
        from importlib.metadata import version

        put(version("whyformer"))
        return 0
    from whyformer.cli.app import invoke

    if process is not None:
        process.raises()
    return invoke(arguments)
