"""How far something long is: whoever works reports it, and whoever watches is told, however far apart they are.

    with counting("heads"):            # a bar on standard error, or a line now and then where nobody is watching
        for number, item in enumerate(items):
            with part(number, len(items)):
                report(1, 2)           # half of this part is done

`listening` hands reports to any function. It holds for the thread, and for what is called within it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar

from whyformer.escapes import visible

Listener = Callable[[int, int], None]  # called with what is done, and of how much
STEPS = 1000  # that each of several parts is divided into
OFTEN = 10.0  # seconds between two lines, at least
TENTH = 0.1

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
def counting(description: str, count: int | None = None) -> Iterator[None]:
    """Within it, reports move a bar."""
    with bar(description, count) as listener, listening(listener):
        yield


def watched() -> bool:
    """Whether a person sees standard error, on a terminal that can draw over what it has drawn."""
    from rich.console import Console

    return sys.stderr is not None and sys.stderr.isatty() and Console(file=sys.stderr).is_interactive


@contextmanager
def bar(description: str, count: int | None = None) -> Iterator[Listener]:
    """A bar that a listener moves; it stays away from fast jobs. A generator listens only between its results.

    Where nobody watches there is a line now and then; `count` is how many texts or rows the whole is, if that is known.
    """
    if not watched():
        yield StderrProgress(description, count)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    drawn = Progress(console=Console(file=sys.stderr), transient=True)
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


class StderrProgress:
    """A listener that says how far it is in a line on standard error: after ten seconds, then ever more rarely.

    There is another line when the time has doubled, or when a tenth more is done, and never two within ten seconds.
    """

    def __init__(self, description: str, count: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.description, self.count, self._clock = description, count, clock
        self._start: tuple[float, float] | None = None  # when the first report came, and what share was done by then
        self._last = (0.0, 0.0)  # how long it had taken at the last line, and what share was done

    def __call__(self, done: int, total: int) -> None:
        """Take a report, and say so if it is time."""
        share, now = min(1.0, done / max(total, 1)), self._clock()
        self._start = self._start or (now, share)
        passed, since = now - self._start[0], share - self._start[1]
        later, more = passed - self._last[0], share - self._last[1]
        if later < OFTEN or share >= 1 or not (passed >= 2 * self._last[0] or more >= TENTH):
            return
        self._last = (passed, share)
        parts = [f"{100 * share:.0f} %"]
        if self.count is not None:
            parts = [f"{share * self.count:,.0f} of {self.count:,} ({parts[0]})"]
            parts += [f"{since * self.count / passed:.3g} a second"] if since > 0 else []
        parts += [f"about {duration(passed / since * (1 - share))} left"] if since > 0 else []
        tell(f"{self.description}: {', '.join(parts)}")


def tell(text: str) -> None:
    """A line on standard error, wherever that goes."""
    with suppress(OSError):  # then there is no place left to tell it
        if sys.stderr is not None:
            sys.stderr.write(f"whyformer: {visible(' '.join(text.split()))}\n")
            sys.stderr.flush()


def duration(seconds: float) -> str:
    """A time for people: `40 s`, `3 min`, `2 h 10 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
