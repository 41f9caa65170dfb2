"""Recipes of papers, run with something in place of what loads, measures or explains."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import pytest

from whyformer_papers import reproduce as papers
from whyformer_papers.reproduce import Reproduced, Reproduction, runner, tables, text_figures

R = TypeVar("R", bound=Reproduction)


def run(
    recipe: Reproduction,
    *,
    evaluate: Callable[..., Any] | None = None,
    explain: Callable[..., Any] | None = None,
    load: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Reproduced:
    """`papers.run`, in which `evaluate` measures, `explain` explains one text by one method, and `load` loads."""
    with pytest.MonkeyPatch.context() as patched:
        if evaluate is not None:
            patched.setattr(tables, "evaluate", lambda *a, engine, workers, **o: evaluate(*a, **o))
        if explain is not None:
            patched.setattr(text_figures, "explained", explain)
        if load is not None:
            patched.setattr(runner, "load", lambda name, device, dtype: load(name))
        return papers.run(recipe, **options)


def as_kind(kind: type[R], recipe: Reproduction, **changes: Any) -> R:
    """The same recipe as another kind."""
    known = {field.name for field in fields(kind)}
    facts = {name: value for name, value in vars(recipe).items() if name in known}
    return kind(**{**facts, **changes})
