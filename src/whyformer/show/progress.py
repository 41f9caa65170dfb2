"""A progress bar, where a person is watching."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


def with_progress(starts: range, description: str) -> Iterator[int]:
    """A progress bar on standard error; it stays away from fast jobs."""
    from rich.console import Console
    from rich.progress import track

    begun = time.monotonic()
    for number, start in enumerate(starts):
        yield start
        remaining = len(starts) - number - 1
        if remaining and (time.monotonic() - begun) / (number + 1) * len(starts) > 2:
            rest = starts[number + 1 :]
            console = Console(file=sys.stderr)
            yield from track(rest, description, console=console, transient=True, disable=not sys.stderr.isatty())
            return


@contextmanager
def counting(description: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for work that says how much is done, and of how much; it stays away from fast jobs."""
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty())
    first: tuple[float, int] | None = None
    with ExitStack() as shown:

        def tell(done: int, total: int) -> None:
            nonlocal first
            first = first or (time.monotonic(), done)
            passed, since = time.monotonic() - first[0], done - first[1]
            if not bar.tasks and since and done < total and passed / since * (total - first[1]) > 2:
                shown.enter_context(bar)
                bar.add_task(description)
            for task in bar.task_ids:
                bar.update(task, completed=done, total=total)

        yield tell
