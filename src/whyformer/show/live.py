"""What a person sees while something long is measured: how far it is, how long it will take, the numbers so far."""

import sys
from types import TracebackType
from typing import Any

from whyformer.escapes import visible
from whyformer.progress import watched
from whyformer.results.aggregate import Aggregate

REFRESH = 2  # times a second


class Watch:
    """A progress bar with the current table below it, on standard error; nothing where no person is watching."""

    def __init__(self, total: int, results: Aggregate, description: str, *, shown: bool = True):
        self.results = results
        self.total, self.description = total, description
        self.shown = shown and watched()
        self._live: Any = None

    def __enter__(self) -> "Watch":
        if not self.shown:
            return self
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("·"),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task(visible(self.description), total=self.total)
        console = Console(file=sys.stderr)
        self._live = Live(self._view(), console=console, refresh_per_second=REFRESH, transient=True)
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, traceback)

    def advance(self, chunks: int = 1) -> None:
        """Some chunks are done."""
        if self._live is not None:
            self._bar.advance(self._task, chunks)
            self._live.update(self._view())

    def _view(self) -> Any:
        from rich.console import Group

        from whyformer.show.tables import live

        return Group(self._bar, live(self.results))
