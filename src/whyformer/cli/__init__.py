"""The command line: explain, compare, methods, heads, metrics, evaluate, tokens, recommend, cost, reproduce, report.

Nothing is imported here that `main` could import where Ctrl-C is one line.
"""

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; without arguments, those of the process."""
    try:
        from whyformer.cli.process import run, run_process

        status = run_process() if arguments is None else run(arguments)
    except KeyboardInterrupt:  # before these functions handle it
        if sys.stderr is not None:
            sys.stderr.write("whyformer: interrupted\n")
        status = 130
    sys.exit(status)
