"""Reports of what is done reach whoever listens, in parts of parts, and nobody else."""

import threading

from tests.helpers import cases
from whyformer import Explainer
from whyformer.progress import listening, part, report


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
