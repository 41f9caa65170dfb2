"""How far work is: told by whoever does it, and shown as a bar on standard error where a person is watching."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from whyformer.escapes import visible

Progress = Callable[[int, int], None]  # called with what is done, and of how much

_LISTENING: ContextVar[Progress | None] = ContextVar("progress", default=None)  # of each thread its own


def report(done: int, total: int) -> None:
    """Tell whoever is listening how far work is."""
    tell = _LISTENING.get()
    if tell is not None:
        tell(done, total)


@contextmanager
def heard(tell: Progress | None) -> Iterator[None]:
    """Within it, what this thread reports is told to `tell`."""
    before = _LISTENING.set(tell)
    try:
        yield
    finally:
        _LISTENING.reset(before)


@contextmanager
def as_part(number: int, parts: int) -> Iterator[None]:
    """Within it, what is reported is that of one of several equal parts of what is reported outside."""
    tell = _LISTENING.get()
    with heard(None if tell is None else part_of(tell, number, parts)):
        report(0, 1)
        yield


def watched() -> bool:
    """Whether a person sees standard error, on a terminal that can draw over what it has drawn."""
    from rich.console import Console

    return sys.stderr is not None and sys.stderr.isatty() and Console(file=sys.stderr).is_interactive


@contextmanager
def counting(description: str) -> Iterator[Progress]:
    """A bar for work that says how much is done, and of how much; it stays away from fast jobs."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress as Bar

    bar = Bar(console=Console(file=sys.stderr), transient=True, disable=not watched())
    first: tuple[float, int] | None = None
    with ExitStack() as shown:

        def tell(done: int, total: int) -> None:
            nonlocal first
            first = first or (time.monotonic(), done)
            passed, since = time.monotonic() - first[0], done - first[1]
            if not bar.tasks and since and done < total and passed / since * (total - first[1]) > 2:
                shown.enter_context(bar)
                bar.add_task(escape(visible(description)))
            for task in bar.task_ids:
                bar.update(task, completed=done, total=total)

        yield tell


def part_of(tell: Progress, number: int, parts: int) -> Progress:
    """How one of several parts tells what is done of it; with `(0, 1)` it says that it begins."""

    def told(done: int, total: int) -> None:
        tell(1000 * number + 1000 * done // max(total, 1), 1000 * parts)

    return told
