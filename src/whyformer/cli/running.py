"""How a command line is run and how it ends: an error is one line, and so is Ctrl-C."""

import sys

from whyformer.cli.interrupts import STATUS, CtrlC, interrupted
from whyformer.cli.streams import close_streams, open_streams, put, say
from whyformer.errors import WhyformerError
from whyformer.escapes import visible


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
    from whyformer.cli.commands import invoke

    if process is not None:
        process.raises()
    return invoke(arguments)
