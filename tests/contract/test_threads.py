"""A model that one thread explains and another runs: each sees what it would see alone."""

import copy
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import whyformer
from tests.helpers import families
from whyformer.rounding import ROUNDING

PREDICTIONS = 5_000
METHODS = {
    "smooth_grad": {"samples": 3},
    "gradient_shap": {"baseline": "zero", "samples": 3},
    "integrated_gradients": {"baseline": "zero", "steps": 3, "at": "embedding_output"},
    "deep_lift_shap": {"baseline": "zero"},
    "attn_lrp": {},
    "transformer_attribution": {},
}
EXPLAINED = families.batch((6, 6))
RUN = families.batch((5,), seed=3)


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    interval, threads = sys.getswitchinterval(), torch.get_num_threads()
    sys.setswitchinterval(1e-5)
    torch.set_num_threads(1)
    yield
    sys.setswitchinterval(interval)
    torch.set_num_threads(threads)


def distance(one: Tensor, other: Tensor) -> float:
    """As a share of the peak."""
    return float((one - other).abs().max() / other.abs().max())


class Running:
    """Runs a model in a thread of its own until it is told to stop, and at least so often."""

    def __init__(self, run: Callable[[], Tensor], least: int):
        self.run, self.least = run, least
        self.count = 0
        self.furthest = 0.0
        self.errors: list[BaseException] = []
        self.stopping = threading.Event()
        self.expected = run()
        self.thread = threading.Thread(target=self._go)

    def _go(self) -> None:
        while not self.stopping.is_set() or self.count < self.least:
            try:
                self.furthest = max(self.furthest, distance(self.run(), self.expected))
            except Exception as error:  # noqa: BLE001 - whatever it is, there should be none
                self.errors.append(error)
            self.count += 1


@pytest.mark.usefixtures("switching")
def test_a_model_predicts_while_another_thread_explains_it() -> None:
    model = copy.deepcopy(families.build("bert", torch.float32))

    def predicted() -> Tensor:
        with torch.no_grad():
            return model(**RUN).logits

    def explained(name: str) -> Tensor:
        return whyformer.attribute(model, EXPLAINED, name, target=1, **METHODS[name])

    expected = {name: explained(name) for name in METHODS}
    running = Running(predicted, PREDICTIONS)
    running.thread.start()
    furthest: dict[str, float] = dict.fromkeys(METHODS, 0.0)
    try:
        while running.count < PREDICTIONS:
            for name in METHODS:
                furthest[name] = max(furthest[name], distance(explained(name), expected[name]))
    finally:
        running.stopping.set()
        running.thread.join()
    assert not running.errors
    assert running.count >= PREDICTIONS
    assert running.furthest <= ROUNDING[torch.float32]
    assert max(furthest.values()) <= ROUNDING[torch.float32]
