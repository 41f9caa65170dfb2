"""Reports of what is done reach whoever listens, in parts of parts, and nobody else."""

import threading

import pytest

from tests.helpers import cases
from whyformer import Explainer
from whyformer.progress import StderrProgress, duration, listening, part, report


def test_parts_of_parts_add_up() -> None:
    told: list[float] = []
    with listening(lambda done, total: told.append(done / total)):
        for number in range(2):
            with part(number, 2):
                for half in range(2):
                    with part(half, 2):
                        report(1, 1)
    assert told == [0, 0, 0.25, 0.25, 0.5, 0.5, 0.5, 0.75, 0.75, 1]


def test_where_nobody_listens_nothing_is_told() -> None:
    with part(0, 2):
        report(1, 1)
    told: list[tuple[int, int]] = []
    with listening(lambda *seen: told.append(seen)):
        thread = threading.Thread(target=report, args=(1, 2))
        thread.start()
        thread.join()
    report(2, 2)
    assert told == []


def test_a_stream_listens_only_while_it_explains() -> None:
    told: list[tuple[int, int]] = []
    with listening(lambda *seen: told.append(seen)):
        for number, _ in enumerate(Explainer(cases.subject()).stream(["a fine film", "a bad film"], batch_size=1)):
            assert not told[number:]
            report(number, 2)
    assert told == [(0, 2), (1, 2)]


def told_by(
    reports: list[tuple[float, int]], capsys: pytest.CaptureFixture[str], count: int | None = None
) -> list[str]:
    """The lines that reports of so many of 1,000 at these seconds lead to."""
    times = iter([seconds for seconds, _ in reports])
    lines = StderrProgress("work", count, clock=lambda: next(times))
    for _, done in reports:
        lines(done, 1000)
    return capsys.readouterr().err.splitlines()


def test_where_nobody_watches_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    reports = [(float(second), second) for second in range(1000)]
    told = told_by(reports, capsys)
    assert told[0] == "whyformer: work: 1 %, about 16 min left"
    assert [line.split()[2] for line in told] == ["1", "2", "4", "8", *(str(n) for n in range(16, 100, 10))]
    assert 10 <= len(told) <= 14


def test_a_line_says_how_many_and_how_fast(capsys: pytest.CaptureFixture[str]) -> None:
    assert told_by([(0, 500), (9.9, 520), (20, 600)], capsys, count=2000) == [
        "whyformer: work: 1,200 of 2,000 (60 %), 10 a second, about 80 s left"
    ]
    assert told_by([(0, 0), (30, 0)], capsys) == ["whyformer: work: 0 %"]
    assert told_by([(0, 0), (30, 1000)], capsys) == []


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (89, "89 s"), (100, "2 min"), (7800, "2 h 10 min")])
def test_times_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words
