"""The command cost."""

from typing import Annotated

import typer

from whyformer.cli.app import Loading, MethodsOption, app, with_model
from whyformer.cli.process import put, put_json
from whyformer.errors import BadOption, shown
from whyformer.evaluation.cost import SECONDS, TOKENS
from whyformer.methods.method import FAST

DIGITS = 9  # at most, of a number of tokens


@app.command("cost")
@with_model
def cost_command(
    *,
    tokens: Annotated[
        str | None,
        typer.Option(
            help="Tokens of a text; separate several numbers by commas. Not for image models.",
            show_default=f"{TOKENS}, or the model's context window if it is shorter",
        ),
    ] = None,
    methods: MethodsOption = FAST,
    batch: Annotated[int, typer.Option(help="Texts or images in a batch.")] = 1,
    seconds: Annotated[float, typer.Option(help="Time limit for all measurements.")] = SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    loading: Loading,
) -> None:
    """Measure how much time and memory methods take on a model."""
    lengths = None if tokens is None else _numbers(tokens)
    table = loading.explainer().cost(methods, tokens=lengths, batch=batch, seconds=seconds)
    if as_json:
        put_json(table.to_dict())
    else:
        put(str(table), coloured=True)


def _numbers(written: str) -> list[int]:
    """Parse numbers that are separated by commas."""
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isdecimal() and len(part) <= DIGITS for part in parts):
        raise BadOption(f"--tokens takes numbers with commas between them, as 128,2048; found {shown(written)}")
    return [int(part) for part in parts]
