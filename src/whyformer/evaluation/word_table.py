"""TokenTable as it is given to people, saved and loaded: which words speak for which class."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.errors import BadInput
from whyformer.metrics.overlap import Counting, WordSums
from whyformer.metrics.registry import metric_named
from whyformer.registry.arguments import validated
from whyformer.results.table import TableData
from whyformer.results.word_table import (
    LINES,
    METRIC,
    SCHEMA_OF_SEVERAL,
    SCHEMA_VERSION,
    TABLE,
    TABLES,
    TOP,
    WORDS,
    TokenTableData,
)
from whyformer.show.render import Shown, text_of
from whyformer.storage.files import read_json, write
from whyformer.storage.forms import Misfit


@dataclass(frozen=True)
class TokenTable(Shown, TokenTableData):
    """Of each predicted class the words with the sums of their scores, times how rare they are.

    A word is what `units.join_words` calls one, lower-cased: a run of letters and digits, or a punctuation mark or
    sign. Its score in a text is the sum of its tokens' scores, weighted by its inverse document frequency (`Idf`). With
    another `Counting`, which `provenance` then names, a word is a token, or counts once a text.
    `totals` are by the index of the class that the model predicted; classes that it never predicted are not there.
    `texts` counts the texts of each. Special tokens are no words.
    """

    @classmethod
    @validated
    def load(cls, path: str | Path) -> "TokenTable":
        """Read what `save` wrote as JSON."""
        tables = load_tables(path)
        if len(tables) != 1:
            raise BadInput(f"{str(path)!r} holds {len(tables)} tables ({', '.join(tables)}): read it with load_tables")
        return next(iter(tables.values()))

    @validated
    def to_markdown(self, k: int = TOP, lines: int = LINES) -> str:
        """The highest words of each class, and the words among the top k that each two classes share."""
        return text_of(self, "markdown", k=k, lines=lines)

    @validated
    def to_text(self, k: int = TOP, lines: int = LINES) -> str:
        """The same for a terminal."""
        return text_of(self, "text", k=k, lines=lines)


def tables_of(results: TableData, counting: Counting | None = None) -> dict[str, TokenTable]:
    """The tables of words of an evaluation that measured `token_overlap`, by method.

    If it counted them in several ways, `counting` says which is meant.
    """
    measured = {m: _counting(facts) for m, facts in results.facts.items() if facts.get("name") == METRIC}
    chosen = _chosen(measured.values(), counting)
    about = results.run.get("about", {})
    provenance = {name: about[name] for name in ("model", "revision", "data") if about.get(name)}
    tables: dict[str, TokenTable] = {}
    for (method, metric), series in results.series.items():
        if measured.get(metric) != chosen or method in tables or not series.details:
            continue
        sums = WordSums()
        for row, detail in zip(series.rows, series.details, strict=True):
            words = json.loads(zlib.decompress(detail))
            try:
                WORDS(words)
            except Misfit as misfit:
                raise BadInput(f"row {row} has no words of {method} by {metric}: {misfit}") from misfit
            sums.add(words)
        told = {**provenance, **chosen.provenance}
        tables[method] = TokenTable(sums.totals, tuple(about.get("labels", ())), method, dict(sums.texts), told)
    if not tables:
        raise BadInput(f"this evaluation has no words: every text was refused, or measure {METRIC}")
    return {method: tables[method] for method in results.methods if method in tables}


def _counting(facts: Mapping[str, Any]) -> Counting:
    """How a metric counted; what is not said there has its default."""
    stated = {name: value for name, value in facts.get("options", {}).items() if name in Counting._fields}
    return Counting(**metric_named(METRIC).checked(stated))


def _chosen(ways: Iterable[Counting], wanted: Counting | None) -> Counting:
    """The way to count that is wanted, or the only one."""
    distinct = list(dict.fromkeys(ways))
    if not distinct:
        raise BadInput(f"this evaluation has no words: measure {METRIC} (--metrics {METRIC})")
    if wanted is None and len(distinct) > 1:
        raise BadInput(
            f"this evaluation counted {'; '.join(map(str, distinct))}: say which, with units and once "
            "(--units word or token, --once or --no-once)"
        )
    if wanted is not None and wanted not in distinct:
        once = str(wanted.once).lower()
        raise BadInput(
            f"this evaluation counted {'; '.join(map(str, distinct))}, not {wanted}: measure "
            f"{METRIC}(units={wanted.units}, once={once})"
        )
    return wanted or distinct[0]


def save_tables(tables: Mapping[str, TokenTable], path: str | Path) -> Path:
    """Write the tables of several methods to one JSON file."""
    several = [table.to_dict() for table in tables.values()]
    data = {"schema": SCHEMA_OF_SEVERAL, "version": SCHEMA_VERSION, "tables": several}
    return write(path, json.dumps(data, ensure_ascii=False, indent=1))


def load_tables(path: str | Path) -> dict[str, TokenTable]:
    """Read what `save_tables` or `TokenTable.save` wrote, by method."""
    data = read_json(path, TABLE.kind)
    if isinstance(data, dict) and data.get("schema") == SCHEMA_OF_SEVERAL:
        several = TABLES.checked(data, path)["tables"]
    else:
        several = [TABLE.checked(data, path)]
    return {table.method: table for table in map(TokenTable._of, several)}
