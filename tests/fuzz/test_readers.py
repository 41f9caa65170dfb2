"""Files of data that were changed at random are read, or refused in one line that names the file."""

import tempfile
from itertools import islice
from pathlib import Path

from tests.fuzz import readers
from tests.fuzz.amount import CASES, SEED
from whyformer.errors import WhyformerError


def test_every_file_is_read_as_it_is(tmp_path: Path) -> None:
    for number, case in enumerate(islice(readers.cases(SEED), len(readers.formats()))):
        case.read(tmp_path / str(number))
        assert not case.changed


def test_changed_files_are_read_or_refused_by_name(tmp_path: Path) -> None:
    for case in islice(readers.cases(SEED + 1), CASES):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            message = refusal(case, folder)
            assert folder in message, case.name
            assert len(message) < 1_000
            assert "\n" not in message


def refusal(case: readers.Case, folder: str) -> str:
    """The error that reading a case ends in, or the folder where it is read whole."""
    try:
        case.read(Path(folder))
    except WhyformerError as error:
        return str(error)
    return folder
