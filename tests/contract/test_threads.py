"""Models in several threads: each thread sees what it would see alone."""

import copy
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from whyformer import Explainer
from whyformer.models import lend, memory
from whyformer.models.lend import lock_of
from whyformer.models.memory import collect_now, uncollected
from whyformer.recorder import differentiating
from whyformer.tolerance import ROUNDING, close

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


@pytest.mark.long
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


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return, each in a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(call) for call in calls]]


def meeting(model: nn.Module, barrier: threading.Barrier, runs: int = 1) -> None:
    """Make the first runs of a model wait inside its forward until others are inside theirs."""
    waiting = [barrier] * runs

    def wait(*_: object) -> None:
        if waiting:
            waiting.pop().wait(timeout=20)

    model.register_forward_pre_hook(wait)


@pytest.mark.parametrize(
    "method", ["attn_lrp", "smooth_grad", "transformer_attribution", "occlusion", "integrated_gradients"]
)
def test_two_models_run_at_the_same_time(method: str) -> None:
    """Each waits inside its forward for the other, which would never come if there were one lock for all models."""
    models = [copy.deepcopy(families.build(name)) for name in ("bert", "gpt2")]

    def explained(model: nn.Module) -> Tensor:
        options = {"baseline": "zero"} if method in ("occlusion", "integrated_gradients") else {}
        return whyformer.attribute(model, EXPLAINED, method, target=1, **options)

    expected = [explained(model) for model in models]
    barrier = threading.Barrier(2)
    for model in models:
        meeting(model, barrier, 2 if whyformer.list_methods()[method].passes == "many" else 1)
    for found, due in zip(together(*(partial(explained, model) for model in models)), expected, strict=True):
        assert close(found, due)


def test_two_explainers_of_different_models_at_the_same_time() -> None:
    loaded = Explainer.load("sentiment").subject
    explainers = [Explainer(copy.deepcopy(loaded.model), loaded.tokenizer) for _ in range(2)]
    with torch.no_grad():
        next(iter(explainers[1].subject.model.parameters())).mul_(0.5)
    expected = [explainer.explain("a fine film").scores for explainer in explainers]
    assert not close(expected[0], expected[1], torch.float32)
    barrier = threading.Barrier(2)
    for explainer in explainers:
        meeting(explainer.subject.model, barrier)
    found = together(*(partial(explainer.explain, "a fine film") for explainer in explainers))
    for explanation, due in zip(found, expected, strict=True):
        assert close(explanation.scores, due, torch.float32)


@pytest.mark.usefixtures("switching")
def test_one_model_in_two_threads_gives_right_numbers() -> None:
    """In training mode, and without a padding token: what is changed for one run must not be given back in another."""
    model = copy.deepcopy(families.build("gpt2")).train()
    batches = [families.batch((4, 7), seed=seed) for seed in range(2)]

    def explained() -> Tensor:
        return whyformer.attribute(model, batches[0], "attn_lrp", target=1)

    def predicted() -> Tensor:
        with torch.no_grad(), lend.borrowed(model, batches[1]) as (plain, arguments):
            return plain(**arguments).logits

    runs = (explained, predicted)
    expected = [run() for run in runs]

    def often(run: Callable[[], Tensor]) -> list[Tensor]:
        return [run() for _ in range(20)]

    for found, due in zip(together(*(partial(often, run) for run in runs)), expected, strict=True):
        assert all(close(one, due) for one in found)
    assert all(module.training for module in model.modules())
    assert model.config.pad_token_id is None


def test_a_run_that_ends_leaves_the_collector_paused_for_another_thread() -> None:
    begun, paused, ended = threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        with differentiating():
            begun.set()
            assert paused.wait(60)
        ended.set()

    def capture() -> bool:
        assert begun.wait(60)
        with uncollected():
            paused.set()
            assert ended.wait(60)
            return gc.isenabled()

    assert gc.isenabled()
    assert together(run, capture)[1] is False
    assert gc.isenabled()


def test_the_collector_stays_paused_until_the_last_of_many_threads_ends() -> None:
    begun, may_end = threading.Barrier(5), [threading.Event() for _ in range(4)]
    ended = [threading.Event() for _ in range(4)]

    def pause(number: int) -> None:
        with uncollected(strict=number == 2):
            begun.wait(60)
            assert may_end[number].wait(60)
        ended[number].set()

    def end_one_by_one() -> list[bool]:
        begun.wait(60)
        is_enabled = []
        for number in (1, 3, 0, 2):
            may_end[number].set()
            assert ended[number].wait(60)
            is_enabled.append(gc.isenabled())
        return is_enabled

    found = together(*(partial(pause, number) for number in range(4)), end_one_by_one)
    assert found[-1] == [False, False, False, True]


def test_nothing_is_collected_during_a_strict_pause_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a CUDA graph is captured in one thread while another evaluates."""
    monkeypatch.setattr(memory, "LONGEST_PAUSE", -1)
    begun, collected = threading.Event(), threading.Event()
    garbage = nn.Linear(1, 1)
    garbage.itself = [garbage]  # type: ignore[assignment]
    freed = weakref.ref(garbage)

    def capture() -> bool:
        with uncollected(strict=True):
            begun.set()
            assert collected.wait(60)
            return freed() is not None

    def evaluate() -> None:
        with uncollected():
            assert begun.wait(60)
            collect_now()
            collected.set()

    with uncollected():
        del garbage
        assert together(capture, evaluate)[0]
        collect_now()
    assert freed() is None


def test_models_that_share_modules_or_a_configuration_share_their_lock() -> None:
    model, other = (copy.deepcopy(families.build("bert")) for _ in range(2))
    assert lock_of(model) is lock_of(model) is lock_of(torch.compile(model)) is lock_of(model.bert)
    assert lock_of(model) is not lock_of(other)
    both = nn.ModuleList([model, other])
    with lock_of(both):
        assert not together(lambda: lock_of(model).acquire(blocking=False))[0]  # type: ignore[attr-defined]
        assert not together(lambda: lock_of(other).acquire(blocking=False))[0]  # type: ignore[attr-defined]
    head = copy.deepcopy(other)
    head.bert = other.bert
    assert lock_of(head) is lock_of(other)
    first = copy.deepcopy(families.build("gpt2"))
    assert first.config.pad_token_id is None
    second = type(first)(first.config)
    assert lock_of(first) is lock_of(second)


def test_a_configuration_of_any_class_has_a_lock() -> None:
    before = len(lend._LOCKS)
    config = SimpleNamespace(pad_token_id=None)  # it allows no weak references
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    first.config = second.config = config  # type: ignore[assignment]
    assert lock_of(first) is lock_of(second)
    del first
    assert lock_of(second) is lock_of(second)
    del second
    gc.collect()
    assert len(lend._LOCKS) <= before


def test_a_lock_lives_as_long_as_its_model() -> None:
    before = len(lend._LOCKS)
    model = copy.deepcopy(families.build("bert"))
    lock_of(model)
    assert len(lend._LOCKS) > before
    del model
    gc.collect()
    assert len(lend._LOCKS) <= before
