"""The command `python -m whyformer_papers.results`."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from whyformer import WhyformerError
from whyformer.cli.app import quiet_loading
from whyformer.cli.process import put, say
from whyformer_papers.results.measuring import RunPlace, is_finished, measure, write_table
from whyformer_papers.results.studies import STUDIES
from whyformer_papers.results.study import Study
from whyformer_papers.results.summaries import write_summaries


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m whyformer_papers.results",
        description="Measure the studies of docs/results.md, and write one CSV file for each. Run again to resume.",
        epilog="Exit status: 0 if all studies have their CSV file, 1 if one is missing, 2 for wrong options.",
    )
    made.add_argument("--models", type=Path, help="a folder of models, one folder for each")
    made.add_argument("--data", type=Path, help="a folder of data sets, one folder for each")
    made.add_argument("--out", type=Path, help="a folder for the runs, which resume there")
    made.add_argument("--tables", type=Path, default=Path("docs/results"), help="a folder for the CSV files")
    made.add_argument("--only", help="the names of studies, commas between")
    made.add_argument("--limit", type=int, help="at most so many rows of each study")
    made.add_argument("--device", help="cpu, cuda …")
    made.add_argument("--commit", default="", help="the commit to note in the CSV files; by default that of the clone")
    made.add_argument("--tables-only", action="store_true", help="write CSV files of finished runs, measure nothing")
    made.add_argument("--docs", type=Path, help="write the summaries of the CSV files into the pages of this folder")
    made.add_argument("--list", action="store_true", dest="listed", help="list the studies")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    options = parser()
    chosen = options.parse_args(arguments)
    if chosen.listed:
        put("\n".join(f"{name:28}{study.title} ({study.model}, {study.data})" for name, study in STUDIES.items()))
        return 0
    names = list(STUDIES) if chosen.only is None else chosen.only.split(",")
    if unknown := [name for name in names if name not in STUDIES]:
        options.error(f"--only: there is no study {unknown[0]!r}; --list lists them")
    if chosen.out is None and chosen.docs is None:
        options.error("give --out, a folder for the runs, or --docs")
    missing = 0
    if chosen.out is not None:
        if chosen.data is None and not chosen.tables_only:
            options.error("--data is needed, or --tables-only")
        given = {name: getattr(chosen, name) for name in ("out", "tables", "models", "data", "limit", "device")}
        place = RunPlace(**given, commit=chosen.commit)
        quiet_loading()
        missing = sum(not _done(STUDIES[name], place, tables_only=chosen.tables_only) for name in names)
    if chosen.docs is not None:
        say(f"wrote {', '.join(path.name for path in write_summaries(chosen.docs, chosen.tables))}")
    return int(missing > 0)


def _done(study: Study, place: RunPlace, *, tables_only: bool) -> bool:
    """Measure a study and write its CSV file; a line says how it went."""
    begun = time.perf_counter()
    try:
        if not tables_only:
            measure(study, place)
        elif not is_finished(study, place):
            raise WhyformerError("there is no finished run in --out")
        path = write_table(study, place)
    except (WhyformerError, OSError, RuntimeError) as error:  # also a GPU without memory: the other studies go on
        say(f"{study.name}: left out: {error}")
        return False
    say(f"{study.name}: {path.name}, {time.perf_counter() - begun:.0f} s")
    return True


if __name__ == "__main__":
    sys.exit(main())
