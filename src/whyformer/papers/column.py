"""A column that is ready to be run: its model is loaded, its data is open, and its head mask is known."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.attention_heads import HeadMask
from whyformer.models.loading import Subject
from whyformer.papers.recipe import Column, Reproduction
from whyformer.papers.result import Part
from whyformer.papers.sources import Opened


@dataclass(frozen=True)
class RunOptions:
    """How much is run and where: texts of each column, runs of random rows, the engine of `evaluate`, the device."""

    limit: int | None = None
    seeds: int | None = None
    engine: str = "local"
    workers: int | None = None
    device: str | None = None
    dtype: str | None = None


@dataclass(frozen=True, eq=False)
class ReadyColumn:
    """A column with its model and its head mask; `folder` is for its journal, `departures` are those known so far."""

    opened: Opened
    subject: Subject
    mask: HeadMask | None
    folder: Path | None
    departures: tuple[str, ...]
    options: RunOptions

    @property
    def column(self) -> Column:
        """The column of the recipe."""
        return self.opened.column

    def part(self, recipe: Reproduction, departures: Sequence[str] = (), **shown: Any) -> Part:
        """What was run of the column; `shown` are the fields of `Part` that this kind of recipe fills."""
        every = (*self.departures, *departures)
        rows = recipe.rows_of(self.column)
        return Part(self.column, self.subject.name, departures=every, rows=rows, mask=self.mask, **shown)


def slug(label: str) -> str:
    """A label as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", label.casefold()).strip("-")
