"""Engines: where chunks are measured. `local` is this process; `ray` has workers, each with a model of its own."""

import io
import logging
import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from itertools import islice
from typing import Any, Protocol

import torch

from whyformer.errors import BadOption, MissingExtra, UnsupportedModel, WhyformerError, nearest
from whyformer.evaluation.chunk import measured_chunk, measured_chunks
from whyformer.evaluation.plan import EvaluationPlan, PendingChunk
from whyformer.results.evaluation import Chunk

CHUNKS_AT_ONCE = 1000  # given to Ray; so the memory needed does not grow with the data
IMAGE_CHUNKS_AT_ONCE = 50
CHUNKS_PER_WORKER = 2  # the one that it measures, and the next


class Engine(Protocol):
    """Measures chunks."""

    def __call__(
        self, plan: EvaluationPlan, pending: Iterable[PendingChunk], workers: int | None = None
    ) -> Iterator[Chunk]:
        """The chunks, measured."""
        ...


def local(plan: EvaluationPlan, pending: Iterable[PendingChunk], workers: int | None = None) -> Iterator[Chunk]:
    """One after the other, here."""
    if workers not in (None, 1):
        raise BadOption(f"workers={workers}: the local engine has one; use engine='ray' (--engine ray)")
    return measured_chunks(plan, pending)


def on_ray(plan: EvaluationPlan, pending: Iterable[PendingChunk], workers: int | None = None) -> Iterator[Chunk]:
    """On workers of Ray, here or on a cluster; the chunks come as they are done."""
    if workers is not None and workers < 1:
        raise BadOption(f"workers={workers}: at least one is needed; leave it out for as many as there is room for")
    ray = _imported()
    return _measured(ray, plan, iter(pending), workers)


def _measured(ray: Any, plan: EvaluationPlan, pending: Iterator[PendingChunk], workers: int | None) -> Iterator[Chunk]:
    at_once = IMAGE_CHUNKS_AT_ONCE if plan.subject.takes_images else CHUNKS_AT_ONCE
    chunks = list(islice(pending, at_once))
    if not chunks:
        return
    _ = plan.facts  # each worker would hash the weights
    packed, device = _packed(plan), plan.subject.device.type
    share = {"num_gpus": 1} if device == "cuda" else {"num_cpus": 1}
    with _running(ray, workers):
        count = worker_count(ray.cluster_resources(), device, workers)
        threads = 1 if count > 1 else torch.get_num_threads()
        setup = (ray.put(packed), device, packages(plan), threads, tuple(sys.path))
        while chunks:
            items = [{"chunk": pickle.dumps(chunk)} for chunk in chunks]
            rows = ray.data.from_items(items, override_num_blocks=len(items))
            size = min(count, len(items))
            pool = ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=CHUNKS_PER_WORKER)
            measured = rows.map(Worker, compute=pool, fn_constructor_args=setup, **share)
            for batch in measured.iter_batches(batch_size=1, batch_format="pyarrow", prefetch_batches=0):
                yield _chunk(batch["found"][0].as_py())
            chunks = list(islice(pending, at_once))


class Worker:
    """A process of Ray that has a model of its own, and measures the chunks that it is given."""

    def __init__(self, packed: Any, device: str, expected: Mapping[str, str], threads: int, path: Sequence[str]):
        self.packed, self.device, self.expected = packed, device, expected
        torch.set_num_threads(threads)
        sys.path += [folder for folder in path if folder not in sys.path]  # a method may be in a module of the user's

    @cached_property
    def plan(self) -> EvaluationPlan:
        """What is measured, with the model on this worker's device."""
        packed = io.BytesIO(import_module("ray").get(self.packed))
        try:
            plan: EvaluationPlan = torch.load(packed, map_location=self.device, weights_only=False)
        except ImportError as error:
            advice = "install it there, or have Ray send it (runtime_env)"
            raise BadOption(f"a worker of Ray cannot import {error.name or error}: {advice}") from error
        if (installed := packages(plan)) != self.expected:
            raise BadOption(f"a worker of Ray has {installed}, and here is {dict(self.expected)}: install the same")
        return plan

    def __call__(self, row: Mapping[str, bytes]) -> dict[str, bytes]:
        """The chunk, measured, or the error that a person should read."""
        try:
            return {"found": pickle.dumps(measured_chunk(self.plan, pickle.loads(row["chunk"])))}
        except WhyformerError as error:
            return {"found": pickle.dumps(error)}


def worker_count(resources: Mapping[str, float], device: str, workers: int | None) -> int:
    """How many workers: one for each GPU if the model is on one, else one for two CPUs, unless a number is given."""
    gpus, cpus = (int(resources.get(kind, 0)) for kind in ("GPU", "CPU"))
    if device == "cuda" and not gpus:
        raise BadOption(
            "the model is on a GPU, and this Ray has none: start Ray where there are some, or use device='cpu'"
        )
    return workers or (gpus if device == "cuda" else max(1, cpus // 2))


def packages(plan: EvaluationPlan) -> dict[str, str]:
    """The versions of the packages here that determine numbers."""
    versions: dict[str, str] = plan.subject.provenance["packages"]
    return versions


def _packed(plan: EvaluationPlan) -> bytes:
    buffer = io.BytesIO()
    try:
        torch.save(plan, buffer, pickle_module=import_module("ray.cloudpickle"))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise UnsupportedModel(f"this model cannot be sent to workers: {error}; use engine='local'") from error
    return buffer.getvalue()


def _chunk(packed: bytes) -> Chunk:
    outcome: Chunk | WhyformerError = pickle.loads(packed)
    if isinstance(outcome, WhyformerError):
        raise outcome
    return outcome


def _imported() -> Any:
    try:
        import_module("ray.data")
    except ImportError as error:
        raise MissingExtra("the engine 'ray' needs Ray: pip install 'ray[data]'") from error
    return import_module("ray")


@contextmanager
def _running(ray: Any, workers: int | None) -> Iterator[None]:
    """The Ray that runs already, or the cluster at RAY_ADDRESS, or one on this machine for the time being."""
    context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    before = context.enable_progress_bars, logger.level
    context.enable_progress_bars = False
    logger.setLevel(logging.CRITICAL)
    ours = not ray.is_initialized()
    try:
        if ours:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
            address = os.environ.get("RAY_ADDRESS")
            try:
                ray.init(address or "local", num_cpus=None if address else workers, **quiet)
            except ConnectionError as error:
                advice = "is it running, and does it need a token (RAY_AUTH_MODE=token)?"
                raise BadOption(f"no answer from Ray, with RAY_ADDRESS={address or ''}: {error}; {advice}") from error
        yield
    finally:
        if ours:
            ray.shutdown()
        context.enable_progress_bars = before[0]
        logger.setLevel(before[1])


ENGINES: dict[str, Engine] = {"local": local, "ray": on_ray}


def engine_named(name: str) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        raise BadOption(f"there is no engine {name!r}; {nearest(name, ENGINES)}")
    return ENGINES[name]
