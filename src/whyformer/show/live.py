"""What a person sees while something long is measured: how far it is, how long it will take, the numbers so far."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from whyformer.escapes import visible
from whyformer.progress import StderrProgress, watched
from whyformer.results.evaluation import Aggregate

REFRESH = 2  # times a second


@contextmanager
def watching(total: int, results: Aggregate, description: str, *, shown: bool = True) -> Iterator[Callable[[], None]]:
    """A progress bar with the current table below it, on standard error; a line now and then where nobody watches.

    What it gives is called after each of `total` chunks.
    """
    if not shown:
        yield lambda: None
        return
    if not watched():
        lines, chunks = StderrProgress(description), count()
        lines(next(chunks), total)
        yield lambda: lines(next(chunks), total)
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from whyformer.show.tables import live

    name = TextColumn("{task.description}", markup=False)
    bar = Progress(name, BarColumn(), MofNCompleteColumn(), TextColumn("·"), TimeRemainingColumn())
    task = bar.add_task(visible(description), total=total)
    view, console = Group(bar, live(results)), Console(file=sys.stderr)
    with Live(view, console=console, refresh_per_second=REFRESH, transient=True) as display:

        def advance() -> None:
            bar.advance(task)
            display.update(Group(bar, live(results)))

        yield advance
