"""The command that tells what explanations will take: cost."""

from typing import Annotated

import typer

from whyformer.cli.app import Loading, MethodsOption, app, with_model
from whyformer.cli.streams import put, put_json
from whyformer.errors import BadOption, shown
from whyformer.evaluation.cost import SECONDS, TOKENS
from whyformer.methods.specs import FAST

DIGITS = 9  # of a number of tokens


@app.command("cost")
@with_model
def cost_command(
    *,
    tokens: Annotated[
        str | None,
        typer.Option(
            help="How long the texts are; several numbers with commas between them. Not for models of images.",
            show_default=f"{TOKENS}, or as many as the model takes",
        ),
    ] = None,
    methods: MethodsOption = FAST,
    batch: Annotated[int, typer.Option(help="Texts or images in one run of the model.")] = 1,
    seconds: Annotated[float, typer.Option(help="How long measuring may take; more makes it more exact.")] = SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    loading: Loading,
) -> None:
    """Say how much time and memory methods take on a model, before you pay for it. Long texts are not run."""
    lengths = None if tokens is None else _numbers(tokens)
    table = loading.explainer().cost(methods, tokens=lengths, batch=batch, seconds=seconds)
    if as_json:
        put_json(table.to_dict())
    else:
        put(str(table), coloured=True)


def _numbers(written: str) -> list[int]:
    """Numbers with commas between them."""
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isdecimal() and len(part) <= DIGITS for part in parts):
        raise BadOption(f"--tokens takes numbers with commas between them, as 128,2048; found {shown(written)}")
    return [int(part) for part in parts]
