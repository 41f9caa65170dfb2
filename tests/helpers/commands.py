"""The command line in this process: the status that it ends with, and what it prints."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from whyformer.cli import main


class Result(NamedTuple):
    """What became of a command."""

    status: int
    out: str
    err: str


Run = Callable[..., Result]


def status_of(*arguments: object) -> int:
    """Run a command; the status that it ends with."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def replaced(arguments: Sequence[object], **flags: object) -> list[object]:
    """The arguments of a command, with other values for flags that it is given."""
    changed = list(arguments)
    for name, value in flags.items():
        changed[changed.index(f"--{name}") + 1] = value
    return changed
