"""How much memory there is, how much a call takes, and how much attention maps would take: known before they are."""

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from tests.helpers import families
from whyformer import TooLarge, WhyformerError, attribute
from whyformer.models import memory
from whyformer.models.memory import free_memory, in_words, peak_memory
from whyformer.recorder.memory import check_fits, maps_estimate

CPU = torch.device("cpu")
MIB = 2**20


def bert(**sizes: Any) -> hf.PreTrainedModel:
    small = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 16}
    return hf.BertForSequenceClassification(hf.BertConfig(**{**small, "vocab_size": 50, **sizes})).eval()


def test_live_storages_are_counted_and_let_go() -> None:
    def call() -> None:
        first = torch.zeros(MIB)  # 4 MiB
        second = first + 1  # 8 MiB
        view = second[10:]  # no storage of its own
        del first, second
        third = torch.ones(MIB, dtype=torch.float64)  # 8 MiB beside the 4 of the view
        del view, third
        torch.zeros(2 * MIB)  # alone

    assert peak_memory(call, CPU) == 12 * MIB


def test_weights_and_inputs_are_not_counted_again() -> None:
    weight = torch.ones(MIB)
    assert peak_memory(lambda: weight.view(2, -1).T, CPU, [weight]) == 0
    assert peak_memory(lambda: weight * 2, CPU, [weight]) == 4 * MIB


def test_what_is_kept_for_a_gradient_is_counted() -> None:
    leaf = torch.ones(MIB, requires_grad=True)

    def call() -> None:
        result = leaf.exp().exp().exp()  # each kept for the gradient
        torch.autograd.grad(result.sum(), leaf)

    assert 12 * MIB <= (peak_memory(call, CPU, [leaf]) or 0) <= 25 * MIB
    assert (peak_memory(lambda: leaf.detach().exp().exp().exp(), CPU, [leaf]) or 0) < 9 * MIB


def test_counting_keeps_nothing_alive() -> None:
    kept = []

    def call() -> None:
        tensor = torch.zeros(8)
        kept.append(weakref.ref(tensor.untyped_storage()))

    peak_memory(call, CPU)
    assert kept[0]() is None


def test_a_device_that_does_not_tell() -> None:
    assert peak_memory(lambda: None, torch.device("meta")) is None
    assert free_memory(torch.device("meta")) is None


def test_maps_are_counted_by_the_configuration() -> None:
    assert maps_estimate(bert(), batch=2, units=10, copies=1.5) == 2 * 4 * 10 * 10 * 4 * 3 * 1.5
    assert maps_estimate(bert().half(), 1, 10, 1) == maps_estimate(bert(), 1, 10, 1)  # softmax is taken in float32
    assert maps_estimate(bert().double(), 1, 10, 1) == 2 * 4 * 10 * 10 * 4 * 3
    gpt2 = hf.GPT2ForSequenceClassification(hf.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=9))
    assert maps_estimate(gpt2, 1, 5, 1) == 2 * 2 * 5 * 5 * 4


def test_where_the_shape_is_not_known() -> None:
    assert maps_estimate(torch.nn.Linear(2, 2), 1, 10, 1) is None
    swin = hf.SwinForImageClassification(hf.SwinConfig(embed_dim=8, depths=[1, 1], num_heads=[1, 2], image_size=32))
    assert maps_estimate(swin, 1, 10, 1) is None
    sparse = bert()
    sparse.config.attention_window = [8, 8, 8]
    assert maps_estimate(sparse, 1, 10, 1) is None


def test_layers_without_attention_have_no_maps() -> None:
    mixed = bert()
    mixed.config.layer_types = ["linear_attention", "full_attention", "linear_attention"]
    assert maps_estimate(mixed, 1, 10, 1) == 4 * 10 * 10 * 4


@pytest.mark.parametrize("method", ["rollout", "attcat", "gae", "lrp"])
def test_an_explanation_takes_a_few_copies_of_the_maps(method: str) -> None:
    model, ids = bert(), torch.ones(1, 400, dtype=torch.long)
    peak = peak_memory(lambda: attribute(model, {"input_ids": ids}, method), CPU, model.parameters())
    one = maps_estimate(model, 1, 400, 1)
    assert peak is not None
    assert one is not None
    assert one < peak < 8 * one


@pytest.mark.parametrize("method", ["attn_lrp", "cp_lrp", "layer_lrp", "input_x_gradient"])
def test_what_needs_no_maps_takes_less_than_they_would(method: str) -> None:
    model, ids = bert(), torch.ones(1, 400, dtype=torch.long)
    peak = peak_memory(lambda: attribute(model, {"input_ids": ids}, method), CPU, model.parameters())
    one = maps_estimate(model, 1, 400, 1)
    assert peak is not None
    assert one is not None
    assert peak < one / 5


def test_what_cannot_fit_is_an_error_with_numbers_and_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyformer.recorder.memory.free_memory", lambda device: 3 * 2**30)
    check_fits(3 * 2**30, CPU, "rollout of 1 text of 4096 tokens")
    check_fits(None, CPU, "what nobody knows")
    with pytest.raises(TooLarge) as caught:
        check_fits(12 * 2**30, CPU, "rollout of 1 text of 8192 tokens")
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, WhyformerError)
    message = str(caught.value)
    assert message.startswith("rollout of 1 text of 8192 tokens would take about 12.0 GiB for attention maps")
    assert "and 3.0 GiB are free on cpu" in message
    assert all(advice in message for advice in ("attn_lrp", "layer_lrp", "a shorter text", "memory='low'"))


def test_where_nobody_knows_what_is_free_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyformer.recorder.memory.free_memory", lambda device: None)
    check_fits(2**60, CPU, "anything")


def files(monkeypatch: pytest.MonkeyPatch, contents: dict[str, str]) -> None:
    """What the system says of its memory."""
    monkeypatch.setattr(memory, "_lines", lambda path: contents.get(str(path), "").splitlines())


GROUP = "/sys/fs/cgroup"


def test_free_memory_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    files(monkeypatch, {"/proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 5000 kB\n"})
    assert free_memory(CPU) == 5000 * 2**10


def test_the_limit_of_a_control_group_counts_if_it_is_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {
        "/proc/meminfo": "MemAvailable: 5000 kB",
        "/proc/self/cgroup": "0::/outer/inner",
        f"{GROUP}/outer/inner/memory.max": "max",
        f"{GROUP}/outer/memory.max": str(900 * 2**10),
        f"{GROUP}/outer/memory.current": str(500 * 2**10),
        f"{GROUP}/outer/memory.stat": f"anon 7\ninactive_file {100 * 2**10}",
    }
    files(monkeypatch, here)
    assert free_memory(CPU) == (900 - 500 + 100) * 2**10
    files(monkeypatch, here | {f"{GROUP}/outer/memory.max": str(10**12)})
    assert free_memory(CPU) == 5000 * 2**10


def test_control_groups_of_the_first_version(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {
        "/proc/meminfo": "MemAvailable: 5000 kB",
        "/proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/a",
        f"{GROUP}/memory/a/memory.limit_in_bytes": "3000",
        f"{GROUP}/memory/a/memory.usage_in_bytes": "1000",
    }
    files(monkeypatch, here)
    assert free_memory(CPU) == 2000


def test_without_such_files_pages_are_counted_or_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    files(monkeypatch, {})
    monkeypatch.setattr("os.sysconf", {"SC_AVPHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert free_memory(CPU) == 40960

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr("os.sysconf", unknown)
    assert free_memory(CPU) is None


def test_this_machine_has_memory() -> None:
    assert (free_memory(CPU) or 1) > 0
    assert memory._lines(Path("/nowhere/at/all")) == []


def test_bytes_in_words() -> None:
    assert [in_words(n) for n in (12, 2**10, 1.5 * MIB, 300 * MIB, 2**30)] == [
        *("12 B", "1 KiB", "1.5 MiB", "300 MiB"),
        "1 GiB",
    ]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_families_of_the_tests_have_an_estimate(family: str) -> None:
    assert maps_estimate(families.build(family), 1, 8, 1)
