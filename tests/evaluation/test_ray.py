"""The engine `ray`: the same keys and the same table as `local`, whatever happens to a worker."""

import os
import pickle
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from tests.helpers import cases
from tests.helpers.evaluated import alike
from whyformer.datasets import open_dataset
from whyformer.errors import BadOption, MissingExtra, UnsupportedModel, WhyformerError
from whyformer.evaluation import executors
from whyformer.evaluation.chunk import measured_chunk
from whyformer.evaluation.evaluate import Evaluation, Table, evaluate
from whyformer.evaluation.executors import ENGINES, Worker, engine_named, local, on_ray, packages, worker_count
from whyformer.evaluation.journal import Journal
from whyformer.evaluation.plan import EvaluationPlan, PendingChunk
from whyformer.explain.folder import kept_examples
from whyformer.methods.method import METHODS, method, method_specs
from whyformer.metrics import Case
from whyformer.metrics.metric import METRICS, metric, metric_specs
from whyformer.prediction import Prediction
from whyformer.results.evaluation import Chunk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),  # what Ray itself still uses
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]

ROWS, ROWS_PER_CHUNK = 40, 4
CHUNKS = ROWS // ROWS_PER_CHUNK
WORDS = ["the", "a", "film", "fine", "bad", "is", "acting", "actors", "not", "like", "and", "all", "it"]


@pytest.fixture(autouse=True)
def own_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten behind it."""
    monkeypatch.setattr(METHODS, "known", dict(METHODS))
    monkeypatch.setattr(METRICS, "known", dict(METRICS))


@pytest.fixture(scope="module")
def no_ray_left() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # Ray would write one to the home folder
        patched.delenv("RAY_ADDRESS", raising=False)
        yield
        ray.shutdown()


@pytest.fixture
def without_ray(no_ray_left: None) -> None:
    ray.shutdown()


@pytest.fixture
def with_ray(no_ray_left: None) -> None:
    if not ray.is_initialized():
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    stream = random.Random(0)
    texts = [" ".join(stream.choices(WORDS, k=stream.randint(2, 14))) for _ in range(ROWS)]
    path = tmp_path_factory.mktemp("data") / "texts.csv"
    path.write_text("text,label\n" + "".join(f"{text},{stream.randrange(3)}\n" for text in texts))
    return path


def measured(
    data: Path, engine: str, out: Path, methods: str = "attcat,rollout,random", *, workers: int = 2, **options: Any
) -> Table:
    chosen = {"metrics": "aopc,log_odds,kendall_tau", "ceiling": 8, "rows_per_chunk": ROWS_PER_CHUNK} | options
    chosen |= {"engine": engine, "workers": workers if engine == "ray" else None}
    return evaluate(cases.subject(), data, methods, out=out, progress=False, **chosen)


def measuring(methods: str = "rollout", metrics: str = "aopc") -> EvaluationPlan:
    return EvaluationPlan(cases.subject(), method_specs(methods), metric_specs(metrics))


def tasks(of: EvaluationPlan, data: Path) -> list[PendingChunk]:
    labels = of.subject.labels
    return list(Evaluation(of, open_dataset(data, labels=labels), ROWS_PER_CHUNK).pending(frozenset()))


def keys(folder: Path) -> list[str]:
    """The keys of all records, in order."""
    return sorted(record.key for chunk in Journal.read(folder).chunks() for record in chunk.records)


def ranges(folder: Path) -> list[tuple[int, int]]:
    return sorted((chunk.start, chunk.stop) for chunk in Journal.read(folder).chunks())


def test_the_table_and_the_journal_are_those_of_the_local_engine(data: Path, tmp_path: Path, without_ray: None) -> None:
    """Also: Ray is started for the run, and stopped behind it."""
    here = measured(data, "local", tmp_path / "local")
    there = measured(data, "ray", tmp_path / "ray")
    assert not ray.is_initialized()
    assert there.to_markdown() == here.to_markdown()
    assert keys(tmp_path / "ray") == keys(tmp_path / "local")
    assert ranges(tmp_path / "ray") == ranges(tmp_path / "local")
    assert len(ranges(tmp_path / "ray")) == CHUNKS


class Stopped(Exception):
    pass


def stopping(after: int) -> Callable[..., Iterator[Chunk]]:
    """The local engine, stopped after some chunks."""

    def engine(measuring: EvaluationPlan, tasks: Iterable[PendingChunk], workers: int | None) -> Iterator[Chunk]:
        yield from islice(local(measuring, tasks, workers), after)
        raise Stopped

    return engine


def test_what_the_local_engine_began_is_taken_up(
    data: Path, tmp_path: Path, with_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: scores are kept."""
    with monkeypatch.context() as patched:
        patched.setitem(ENGINES, "local", stopping(3))
        with pytest.raises(Stopped):
            measured(data, "local", tmp_path / "both", keep_scores=True)
    begun = (tmp_path / "both" / "journal.jsonl").read_bytes()
    assert len(ranges(tmp_path / "both")) == 3
    monkeypatch.setattr(executors, "CHUNKS_AT_ONCE", 5)  # and then two
    both = measured(data, "ray", tmp_path / "both", workers=1, keep_scores=True)  # each takes seconds to start
    assert (tmp_path / "both" / "journal.jsonl").read_bytes().startswith(begun)
    assert both.to_markdown() == measured(data, "local", tmp_path / "local", keep_scores=True).to_markdown()
    assert keys(tmp_path / "both") == keys(tmp_path / "local")
    assert ray.is_initialized()  # it was there before
    here, there = (list(kept_examples(tmp_path / folder)) for folder in ("local", "both"))
    assert len(here) == ROWS
    for one, other in zip(here, there, strict=True):
        assert (one.row, one.gold) == (other.row, other.gold)
        assert alike(one.explanations, other.explanations)


def counted(prediction: Prediction, *, folder: str = "") -> torch.Tensor:
    """The places of the units; the third call waits to be killed."""
    number = call_number(Path(folder))
    if number == 2:
        victim = Path(folder) / "victim"
        victim.with_suffix(".new").write_text(str(os.getpid()))
        victim.with_suffix(".new").rename(victim)
        while True:
            time.sleep(1)
    return torch.arange(prediction.padding.shape[1]).expand(prediction.padding.shape).double()


def call_number(folder: Path) -> int:
    """How many calls there were before this one, in all processes."""
    number = 0
    while True:
        try:
            (folder / f"call-{number}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number


def test_a_killed_worker_changes_nothing(
    data: Path, tmp_path: Path, with_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    method(family="test", signed=False, class_specific=False, paper="–")(counted)
    calls = tmp_path / "calls"
    calls.mkdir()
    killed: list[int] = []

    def killing(measuring: EvaluationPlan, tasks: Iterable[PendingChunk], workers: int | None) -> Iterator[Chunk]:
        for chunk in on_ray(measuring, tasks, workers):
            if not killed:
                while not (calls / "victim").exists():
                    time.sleep(0.05)
                killed.append(int((calls / "victim").read_text()))
                assert killed[0] != os.getpid()
                os.kill(killed[0], signal.SIGKILL)
            yield chunk

    options = {"methods": f"rollout,counted(folder={calls})", "metrics": "aopc,log_odds", "ceiling": False}
    with monkeypatch.context() as patched:
        patched.setitem(ENGINES, "ray", killing)
        there = measured(data, "ray", tmp_path / "ray", **options)
    assert killed
    assert len(list(calls.glob("call-*"))) > CHUNKS  # the chunk in hand was measured again
    here = measured(data, "local", tmp_path / "local", **options)
    assert there.to_markdown() == here.to_markdown()
    assert keys(tmp_path / "ray") == keys(tmp_path / "local")
    assert len(set(keys(tmp_path / "ray"))) == len(keys(tmp_path / "ray")) == ROWS * 4
    assert len(ranges(tmp_path / "ray")) == CHUNKS


def particular(case: Case) -> torch.Tensor:
    """A metric that does not like texts with “acting”."""
    texts = ["".join(unit.text for unit in example.units) for example in case.prediction.batch.examples]
    if any("act" in text for text in texts):
        raise BadOption("no acting, please: choose other texts")
    return torch.zeros(len(case))


def test_an_error_in_a_worker_is_the_error_here(data: Path, tmp_path: Path, with_ray: None) -> None:
    metric(family="test", higher_is_better=True, bounds=(0, 1), paper="–")(particular)
    for engine in ("local", "ray"):
        with pytest.raises(BadOption) as refusal:
            measured(data, engine, tmp_path / engine, metrics="particular", ceiling=False, workers=1)
        assert str(refusal.value) == "particular: no acting, please: choose other texts"
        assert type(refusal.value) is BadOption


def told(worker: Worker, task: PendingChunk) -> WhyformerError:
    found = pickle.loads(worker({"chunk": pickle.dumps(task)})["found"])
    assert isinstance(found, WhyformerError)
    return found


def test_a_worker_must_have_what_determines_the_numbers(data: Path, with_ray: None) -> None:
    of = measuring()
    first = tasks(of, data)[0]
    good = (ray.put(executors._packed(of)), "cpu", packages(of), 1, ())
    assert alike(pickle.loads(Worker(*good)({"chunk": pickle.dumps(first)})["found"]), measured_chunk(of, first))
    old = told(Worker(*good[:2], packages(of) | {"torch": "1.0"}, 1, ()), first)
    assert isinstance(old, BadOption)
    assert "'torch': '1.0'" in str(old)
    assert f"'torch': '{packages(of)['torch']}'" in str(old)


def test_a_module_that_workers_do_not_have_is_named(
    data: Path, tmp_path: Path, with_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "own_methods_of_mine"
    (tmp_path / f"{name}.py").write_text('def mine(prediction):\n    """Mine."""\n')
    with monkeypatch.context() as patched:
        patched.setattr(sys, "path", [*sys.path, str(tmp_path)])
        module = import_module(name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    method(family="test", signed=False, class_specific=False, paper="–")(module.mine)
    of = measuring("mine")
    first, packed = tasks(of, data)[0], ray.put(executors._packed(of))
    del sys.modules[name]
    refusal = told(Worker(packed, "cpu", packages(of), 1, ()), first)
    assert isinstance(refusal, BadOption)
    assert f"cannot import {name}" in str(refusal)
    assert Worker(packed, "cpu", packages(of), 1, [str(tmp_path)]).plan.methods[0].label == "mine"
    del sys.modules[name]


def test_ray_is_not_started_for_nothing(data: Path, without_ray: None) -> None:
    assert list(on_ray(measuring(), [], 2)) == []
    own = cases.subject()
    model = type(own.model)(own.model.config)
    model.lock = threading.Lock()  # type: ignore[assignment]
    of = replace(measuring(), subject=replace(own, model=model))
    with pytest.raises(UnsupportedModel, match=r"cannot be sent to workers.*engine='local'"):
        list(on_ray(of, tasks(measuring(), data), 2))
    with pytest.raises(BadOption, match="workers=0"):
        on_ray(measuring(), [], 0)
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("device", "resources", "workers", "expected"),
    [
        ("cpu", {"CPU": 8.0}, None, 4),
        ("cpu", {"CPU": 1.0}, None, 1),
        ("cpu", {"CPU": 8.0, "GPU": 2.0}, None, 4),
        ("cpu", {"CPU": 2.0}, 3, 3),
        ("cuda", {"CPU": 8.0, "GPU": 2.0}, None, 2),
        ("cuda", {"CPU": 8.0, "GPU": 2.0}, 1, 1),
    ],
)
def test_how_many_workers(device: str, resources: dict[str, float], workers: int | None, expected: int) -> None:
    assert worker_count(resources, device, workers) == expected


def test_a_model_on_a_gpu_needs_one_in_ray() -> None:
    with pytest.raises(BadOption, match="this Ray has none"):
        worker_count({"CPU": 8.0}, "cuda", 2)


class Recorded:
    """In place of Ray: what it was asked to do."""

    def __init__(self, running: bool):
        self.data = ray.data  # which is slow to import
        self.running, self.asked = running, []

    def is_initialized(self) -> bool:
        return self.running

    def init(self, address: str, **options: Any) -> None:
        self.asked.append((address, options["num_cpus"]))
        if address == "nowhere":
            raise ConnectionError("nobody is there")

    def shutdown(self) -> None:
        self.asked.append("shutdown")


@pytest.mark.parametrize(
    ("running", "address", "asked"),
    [
        (False, None, [("local", 3), "shutdown"]),
        (False, "10.0.0.1:6379", [("10.0.0.1:6379", None), "shutdown"]),  # leaves the cluster, which goes on
        (True, "10.0.0.1:6379", []),
    ],
)
def test_which_ray(running: bool, address: str | None, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if address is None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    context, stand_in = ray.data.DataContext.get_current(), Recorded(running)
    before = context.enable_progress_bars

    def used() -> None:
        with executors._running(stand_in, 3):
            assert not context.enable_progress_bars
            raise Stopped

    with pytest.raises(Stopped):
        used()
    assert stand_in.asked == asked
    assert context.enable_progress_bars is before


def test_a_ray_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with pytest.raises(BadOption, match="RAY_ADDRESS=nowhere: nobody is there"), executors._running(Recorded(False), 2):
        pass


def test_without_the_package_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ray\[data\]'"):
        engine_named("ray")(measuring(), [], None)
