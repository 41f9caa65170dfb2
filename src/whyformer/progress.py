"""How far something long is: whoever works reports it, and whoever watches is told, however far apart they are.

    with counting("heads"):            # a bar on standard error, where a person is watching
        for number, item in enumerate(items):
            with part(number, len(items)):
                report(1, 2)           # half of this part is done

`listening` hands reports to any function. It holds for the thread, and for what is called within it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from whyformer.escapes import visible

Listener = Callable[[int, int], None]  # called with what is done, and of how much
STEPS = 1000  # that each of several parts is divided into

_LISTENER: ContextVar[Listener | None] = ContextVar("progress", default=None)


def report(done: int, total: int) -> None:
    """Say how much is done, and of how much."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(done, total)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Within it, reports go to this function, or to nobody."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


@contextmanager
def part(number: int, parts: int) -> Iterator[None]:
    """Within it, what is reported done is done of one of several parts; that it begins is reported first."""
    outer = _LISTENER.get()
    if outer is None:
        yield
        return
    with listening(lambda done, total: outer(STEPS * number + STEPS * done // max(total, 1), STEPS * parts)):
        report(0, 1)
        yield


@contextmanager
def counting(description: str) -> Iterator[None]:
    """Within it, reports move a bar."""
    with bar(description) as listener, listening(listener):
        yield


def watched() -> bool:
    """Whether a person sees standard error, on a terminal that can draw over what it has drawn."""
    from rich.console import Console

    return sys.stderr is not None and sys.stderr.isatty() and Console(file=sys.stderr).is_interactive


@contextmanager
def bar(description: str) -> Iterator[Listener]:
    """A bar that a listener moves; it stays away from fast jobs. A generator listens only between its results."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    drawn = Progress(console=Console(file=sys.stderr), transient=True, disable=not watched())
    first: tuple[float, int] | None = None
    with ExitStack() as shown:

        def move(done: int, total: int) -> None:
            nonlocal first
            first = first or (time.monotonic(), done)
            passed, since = time.monotonic() - first[0], done - first[1]
            if not drawn.tasks and since and done < total and passed / since * (total - first[1]) > 2:
                shown.enter_context(drawn)
                drawn.add_task(escape(visible(description)))
            for task in drawn.task_ids:
                drawn.update(task, completed=done, total=total)

        yield move
