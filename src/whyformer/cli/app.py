"""What all commands share: the application, how it ends, how models are loaded, what is printed where."""

import importlib.metadata
import inspect
import sys
import traceback
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from whyformer.auto import EFFORT, Effort
from whyformer.errors import RandomnessWarning, TruncationWarning, WhyformerError
from whyformer.explainer import Explainer
from whyformer.registry import Method, Metric

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer does not name it
app = typer.Typer(
    help="Why did it say that? Explain the predictions of Hugging Face Transformers.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

ModelOption = Annotated[str, typer.Option("--model", "-m", help="A bundled model, a folder, or a hub id.")]
HtmlOption = Annotated[Path | None, typer.Option(help="Write a page to this file.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, …")]
DtypeOption = Annotated[str | None, typer.Option(help="float32, bfloat16, float16 or float64.")]
PickleOption = Annotated[bool, typer.Option("--allow-pickle", help="Read weights that can run code.")]
CodeOption = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that the model brings along.")]
NoCacheOption = Annotated[
    bool, typer.Option("--no-cache", help="Neither read nor write what was found best for a model.")
]
MethodsOption = Annotated[
    str,
    typer.Option(
        "--methods",
        help="Names with commas between them, options in brackets: attcat(states=inputs). fast: all of one pass; all.",
    ),
]
EffortOption = Annotated[
    str | None,
    typer.Option(
        help="Of the method auto: fast is one pass, balanced 3 and best 10 steps of stepwise. Unless told: " + EFFORT,
        metavar="|".join(get_args(Effort)),
    ),
]


@app.callback(invoke_without_command=True)
def options_for_all(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (may stand anywhere).")] = False,
) -> None:
    """Why did it say that? Explain the predictions of Hugging Face Transformers."""
    if version:
        put(importlib.metadata.version("whyformer"))
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: an error is one line on standard error and exit status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [a for a in given if a != "--debug"] or ["--help"]
    warnings.simplefilter("always", TruncationWarning)
    warnings.showwarning = show_warning
    try:
        status = app(given, standalone_mode=False)
    except KeyboardInterrupt:
        say("interrupted")
        status = 130
    except WhyformerError as error:
        if debug:
            traceback.print_exc()
        say(f"error: {' '.join(str(error).split())}")
        status = 2
    except UsageError as error:
        message = getattr(error, "format_message", error.__str__)()
        say(f"error: {' '.join(message.split())}")
        status = 2
    except typer.Abort:
        status = 130
    sys.exit(status if isinstance(status, int) else 0)


def load_explainer(
    model: str, device: str | None, dtype: str | None, allow_pickle: bool, trust: bool, choices: bool = True
) -> Explainer:
    """Load a model without transformers' own remarks."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    options = {"device": device, "dtype": dtype, "allow_pickle": allow_pickle, "trust_remote_code": trust}
    return Explainer.load(model, choices=choices, **options)


def put(text: str) -> None:
    """Print a result on standard output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Tell something about the run, on standard error."""
    sys.stderr.write(f"whyformer: {text}\n")


def described(registered: Method | Metric) -> str:
    """A method or metric in full: what it does, where it comes from, its options."""
    lines = [
        f"{registered.name}: {inspect.getdoc(registered.function)}",
        "",
        f"Paper: {registered.paper}. Family: {registered.family}.",
    ]
    lines += [f"  {o.flag} {o.takes} (default {o.default})" for o in registered.options.values()]
    return "\n".join(lines)


def put_listing(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their columns, as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        grid.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else 160).print(grid, highlight=False)


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Tell what was cut off or is random; other warnings are not for users of the command line."""
    if issubclass(category, (TruncationWarning, RandomnessWarning)):
        say(f"warning: {message}")
