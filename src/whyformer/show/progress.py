"""A progress bar, where a person is watching."""

import sys
import time
from collections.abc import Iterator


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
