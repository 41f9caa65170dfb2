"""All commands together, those of plug-ins too, and how one of them is run.

A plug-in names a module for each of its commands in the entry points `whyformer.commands`. The module adds the command
to `whyformer.cli.app.app` when it is imported.
"""

import warnings
from typing import Any

import typer

from whyformer.cli.app import app
from whyformer.cli.streams import say
from whyformer.errors import BadOption, WhyformerWarning
from whyformer.registry import names

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
    import whyformer.cli.evaluating
    import whyformer.cli.explaining
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
