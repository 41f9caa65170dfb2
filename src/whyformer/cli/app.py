"""The application: options that all commands share, loading models, listing results, and running one command.

Plug-ins add commands. Each names a module in the entry points `whyformer.commands`; when it is imported, the module
adds its command to `whyformer.cli.app.app`.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer

from whyformer.cli.process import put, say
from whyformer.errors import BadOption, WhyformerWarning
from whyformer.explain.explainer import Explainer
from whyformer.methods.default import EFFORT, Effort
from whyformer.methods.method import Method
from whyformer.metrics.metric import Metric
from whyformer.registry import names
from whyformer.registry.names import Registry
from whyformer.show.pictures import picture_format, write_figure
from whyformer.storage.files import check_place

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_BATCH = 100_000
M = TypeVar("M", bound=Method | Metric)
NARROW = 60  # columns of a terminal; listings stand side by side where there are more
Command = Callable[..., None]
app = typer.Typer(
    help="Why did it say that? Explain the predictions of Hugging Face Transformers.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

HtmlOption = Annotated[Path | None, typer.Option(help="Write a page to this file.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, …")]
DtypeOption = Annotated[str | None, typer.Option(help="float32, bfloat16, float16 or float64.")]
CaptureOption = Annotated[bool, typer.Option(help="On a GPU, capture what is asked again, and replay it.")]
MethodsOption = Annotated[
    str,
    typer.Option(
        "--methods",
        help="Names with commas between them, options in brackets: attcat(states=inputs). short: five methods; fast: "
        "all that run the model once; all.",
    ),
]
TextColumn = Annotated[
    str | None, typer.Option("--text", help="The column of the text; two with a comma between them for pairs.")
]
WindowSizeOption = Annotated[
    int | None, typer.Option(help="Tokens in a window of a long text; by default as many as the model takes.")
]
OverlapOption = Annotated[
    int | None, typer.Option(help="Tokens that two windows share. Default: 128, or half a window if that is less.")
]
DirectionOption = Annotated[
    str,
    typer.Option(help="Which word of a relation looks at the other: dependent_to_head, head_to_dependent or either."),
]
PiecesOption = Annotated[
    str, typer.Option(help="The attention of a word: that of all its tokens together (joined), or of its first one.")
]
SpecialOption = Annotated[
    bool, typer.Option("--special-tokens/--no-special-tokens", help="Count special tokens as queries and keys too.")
]
SubtypesOption = Annotated[
    bool, typer.Option("--subtypes/--no-subtypes", help="Count relations such as nsubj:pass as nsubj.")
]
ErrorOption = Annotated[str, typer.Option("--on-error", help="What to do with bad rows: refuse or skip.")]
EffortOption = Annotated[
    str | None,
    typer.Option(
        help="Of the method auto: fast is one pass, balanced 3 and best 10 steps of stepwise. Default: " + EFFORT,
        metavar="|".join(get_args(Effort)),
    ),
]


@app.callback(invoke_without_command=True)
def options_for_all(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (may stand anywhere).")] = False,
) -> None:
    """Why did it say that? Explain the predictions of Hugging Face Transformers."""


def with_flags(together: str, made: Callable[..., Any], first: int = 0) -> Callable[[Command], Command]:
    """Give a command the parameters of `made` as flags; it gets what is made of them as one parameter.

    The `first` of these flags stand before the command's other ones, the rest behind them.
    """
    flags = list(inspect.signature(made).parameters.values())

    def decorated(command: Command) -> Command:
        signature = inspect.signature(command)
        known = [parameter for parameter in signature.parameters.values() if parameter.name != together]
        arguments = [parameter for parameter in known if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
        every = [*arguments, *flags[:first], *known[len(arguments) :], *flags[first:]]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            bundled = {flag.name: values.pop(flag.name) for flag in flags}
            command(**values, **{together: made(**bundled)})

        run.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return run

    return decorated


@dataclass(frozen=True, kw_only=True)
class Loading:
    """Which model is loaded, and how: flags by the names that `Explainer.load` has for its options."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="A bundled model, a folder, or a hub id.", show_default="sentiment; for images pets"
        ),
    ] = None
    device: DeviceOption = None
    dtype: DtypeOption = None
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help="Read weights that can run code.")] = False
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that ships with the model.")
    ] = False

    def explainer(self, data: object = None, *, images: bool = False) -> Explainer:
        """Load the model without transformers' own remarks. Data needs a model that is named."""
        if data is not None and self.model is None:
            raise BadOption(
                "your own data needs a model: give -m MODEL (-m sentiment and -m pets are the bundled ones)"
            )
        quiet_loading()
        options = dict(vars(self))
        name = options.pop("model") or ("pets" if images else "sentiment")
        return Explainer.load(name, **options)


with_model = with_flags("loading", Loading, first=1)


def quiet_loading() -> None:
    """Leave out transformers' own remarks when models are loaded."""
    from transformers.utils import logging

    logging.set_verbosity_error()


def described(registered: Method | Metric, source: str) -> str:
    """A method or metric in full: what it does, where it comes from, its options."""
    lines = [
        f"{registered.name}: {inspect.getdoc(registered.function)}",
        "",
        f"Paper: {registered.paper}. Family: {registered.family}.{f' Plug-in: {source}.' if source else ''}",
    ]
    lines += [f"  {o.flag} {o.takes} (default {o.default})" for o in registered.options.values()]
    return "\n".join(lines)


def put_registry(
    registry: Registry[M], name: str | None, columns: Sequence[str], row: Callable[[M], tuple[str, ...]]
) -> None:
    """Describe one method or metric, or print a row for each, with a column that names its plug-in if there are any."""
    if name is not None:
        put(described(registry.named(name), registry.source(name)))
        return
    rows = {label: row(member) for label, member in registry.listed().items()}
    if any(map(registry.source, rows)):
        columns = (*columns, "plug-in")
        rows = {label: (*cells, registry.source(label)) for label, cells in rows.items()}
    put_listing(columns, rows.values())


def put_listing(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their columns, as wide as the terminal; one cell after the other where it is narrow."""
    from rich.table import Table

    from whyformer.show.terminal import SafeText, terminal_width, to_text

    width = terminal_width(otherwise=160)
    if width < NARROW:
        put("\n".join("  ".join(filter(None, row)) for row in rows))
        return
    grid = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        grid.add_row(*map(SafeText, row))
    put(to_text(grid, width).rstrip("\n"), coloured=True)


def check_files(files: Iterable[Path | None], pictures: Iterable[Path | None] = ()) -> None:
    """Raise before any work is done if a result could not be written, or if a picture's format is not known."""
    drawn = [path for path in pictures if path is not None]
    for path in (*filter(None, files), *drawn):
        check_place(path)
    for path in drawn:
        picture_format(path)


def limited(option: str, number: int, most: int, what: str) -> None:
    """Raise if a number is more than any machine can take."""
    if number > most:
        raise BadOption(f"{option} takes at most {most:,} {what}; found {number}")


def save_picture(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the file's ending."""
    say(f"wrote {write_figure(figure, path)}")


UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer does not name it


def invoke(arguments: list[str]) -> int:
    """Run a command with its arguments; unlike typer's own way, this lets KeyboardInterrupt and all errors out."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", WhyformerWarning)
        warnings.showwarning = show_warning
        try:
            command = command_with(arguments[0])
            check_repeated(command, arguments)
            with command.make_context("whyformer", arguments) as context:
                command.invoke(context)
        except typer.Exit as stop:
            return int(stop.exit_code)
        except UsageError as error:
            raise BadOption(getattr(error, "format_message", error.__str__)()) from error
    return 0


def command_with(name: str) -> Any:
    """The command line with the command of that name; plug-ins are only imported if it is none of ours."""
    ours = our_commands()
    return ours if name in ours.commands else every_command()


def our_commands() -> Any:
    """The command line with the commands of this package, which their modules add when they are imported."""
    import whyformer.cli.cost
    import whyformer.cli.demo
    import whyformer.cli.evaluate
    import whyformer.cli.explain
    import whyformer.cli.tokens  # noqa: F401

    return typer.main.get_command(app)


def every_command() -> Any:
    """The command line with the commands of plug-ins."""
    our_commands()
    names.load("whyformer.commands")
    return typer.main.get_command(app)


def check_repeated(command: Any, arguments: list[str]) -> None:
    """Raise if an option that takes one value is given twice. The last value would win without a word."""
    chosen = command.commands.get(arguments[0])
    if chosen is None:
        return
    parser = chosen.make_parser(chosen.context_class(chosen, info_name=arguments[0]))
    _, _, order = parser.parse_args(args=list(arguments[1:]))
    single = [one for one in order if not (getattr(one, "multiple", True) or getattr(one, "is_flag", True))]
    for option in single:
        if single.count(option) > 1:
            raise BadOption(f"{option.opts[0]} is given {single.count(option)} times, and takes one value")


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Tell what this package warns of; other warnings are not for users of the command line."""
    if issubclass(category, WhyformerWarning):
        say(f"warning: {message}")
