"""Rules that act while a model runs give what the sites of a run give, in one run, with attention in its kernel."""

import copy
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from scipy.stats import spearmanr
from torch import Tensor, nn

import whyformer
from tests.helpers import engines, families, token_outputs, zoo
from whyformer import UncoveredOperation, attribute
from whyformer.errors import BadOption
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import Method, method_specs
from whyformer.models.cache import known
from whyformer.models.memory import peak_memory
from whyformer.prediction import Prediction
from whyformer.recorder import GRADIENT, MAPS, RELEVANCE, Needs, Trace, record, recording
from whyformer.recorder.attention import attend
from whyformer.recorder.function_mode import Recorder
from whyformer.recorder.lrp.forward_rules import NotWhileRunning, acts_while_running
from whyformer.recorder.lrp.rule_sets import BOOKS, CONSERVATIVE, GRADIENT_BOOKS, PLAIN, with_gamma
from whyformer.recorder.recording import recorded
from whyformer.recorder.taps import positive_products
from whyformer.testing import state
from whyformer.tolerance import close

CPU = torch.device("cpu")
BY_GRADIENT = tuple(GRADIENT_BOOKS)
SEVERAL = ("bert", "deberta_v2", "gpt2", "llama", "mistral", "modernbert")  # one of each kind of norm, gate and mask
OPTIONS: dict[str, dict[str, Any]] = {  # methods that take the gradient of a rule book, as they are written
    "attn_lrp": {},
    "cp_lrp": {},
    "layer_lrp": {"book": "attn"},
    "cat": {"book": "conservative"},
    "cam": {"book": "attn"},
    "attcat": {"book": "attn"},
    "gae": {"book": "conservative"},
    "grads": {"book": "attn"},
    "full_grad": {"book": "attn"},
    "integrated_gradients": {"book": "attn", "steps": 3, "baseline": "zero"},
}
FOLDED = {"bloom", "deberta_v2"}  # their maps are reshaped before they meet their values: sites give their gradients
TWO_TEXTS = {"input_ids": torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])}


def left_padded(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same texts with their padding on the left."""
    lengths = inputs["attention_mask"].sum(1).tolist()
    return {
        name: torch.stack([row.roll(-length) for row, length in zip(tensor, lengths, strict=True)])
        for name, tensor in inputs.items()
    }


@cache
def with_biases(family: str) -> hf.PreTrainedModel:
    """A model of a family whose biases and norms are those of a trained one: anything but 0 and 1."""
    model = copy.deepcopy(families.build(family))
    model.config.pad_token_id = families.PAD  # GPT-2 has none, and would not say what a batch is
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


# The two engines


@pytest.mark.parametrize("book", BY_GRADIENT)
@pytest.mark.parametrize("family", [family for family in families.ALL if family not in FOLDED])
def test_gradients_at_maps_and_states_are_those_of_the_sites(family: str, book: str) -> None:
    model, inputs = with_biases(family), families.batch()
    traces = record(model, inputs, book=book), record(model, inputs)
    assert not traces[0].sites
    ends = [(*trace.attention, *trace.hidden, trace.embeddings) for trace in traces]
    found, expected = (trace.carried(tensors, book, target=1) for trace, tensors in zip(traces, ends, strict=True))
    for at, one, other in zip(ends[1], found, expected, strict=True):
        assert other.abs().sum() > 0 or at is traces[1].hidden[-1]
        assert close(one, other, families.arithmetic(family))


@pytest.mark.parametrize("family", families.ALL)
def test_fused_attention_gives_the_gradients_of_opened_attention(family: str) -> None:
    model, inputs = with_biases(family), families.batch()
    traces = [record(model, inputs, relevance=False, maps=maps) for maps in (False, True)]
    fused, opened = (trace.gradient((*trace.hidden, trace.embeddings), target=2) for trace in traces)
    assert close(traces[0].logits, traces[1].logits, families.arithmetic(family))
    for one, other in zip(fused, opened, strict=True):
        assert close(one, other, families.arithmetic(family))


@pytest.mark.parametrize("maps", [False, True], ids=["fused", "opened"])
@pytest.mark.parametrize("padded", [left_padded, dict], ids=["left", "right"])
@pytest.mark.parametrize("family", SEVERAL)
def test_masks_windows_and_shared_keys(family: str, padded: Callable[[Any], dict[str, Tensor]], maps: bool) -> None:
    """Padding on either side, causal masks, sliding windows (ModernBERT, Mistral) and grouped queries (Llama)."""
    if maps and family in FOLDED:
        return
    assert engines.apart(with_biases(family), padded(families.batch(extra=2)), 1, maps=maps) == {}


def by_path(terms: Sequence[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """What arrived at the biases of each module, added up for each example; a module without is left out."""
    totals: dict[str, Tensor] = {}
    for path, term in terms:
        totals[path] = totals.get(path, torch.zeros(3)) + term.reshape(3, -1).sum(1)
    return {path: total for path, total in totals.items() if total.any()}


@pytest.mark.parametrize("book", [None, *BY_GRADIENT])
@pytest.mark.parametrize("family", [*SEVERAL, "roberta", "bloom", "opt"])
def test_what_arrives_at_biases_is_that_of_the_sites(family: str, book: str | None) -> None:
    """The bias of a norm that the embeddings end with lies below them, and gets nothing."""
    model, inputs = with_biases(family), families.batch()
    chosen = PLAIN if book is None else BOOKS[book]
    running = recorded(model, inputs, Needs(maps=False, book=chosen, biases=True))
    by_sites = record(model, inputs)
    assert running.at_biases == []
    for target in (0, 1):  # terms of an earlier pass are forgotten
        states, terms = running.carried_with_biases(running.hidden, chosen, target)
        expected_states, expected_terms = by_sites.carried_with_biases(by_sites.hidden, chosen, target)
        for one, other in zip(states, expected_states, strict=True):
            assert close(one, other, families.arithmetic(family))
        totals, expected = by_path(terms), by_path(expected_terms)
        assert totals.keys() == expected.keys()
        assert all(close(totals[path], expected[path], families.arithmetic(family)) for path in totals)
    assert totals or family in ("llama", "mistral", "modernbert")  # which have none
    options: dict[str, Any] = {"target": 1, "book": book}
    scores = attribute(model, inputs, "full_grad", **options)
    with engines.sites_alone():
        assert close(scores, attribute(model, inputs, "full_grad", **options), families.arithmetic(family))


@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.parametrize("family", SEVERAL)
@pytest.mark.filterwarnings("ignore")
def test_methods_score_as_by_sites(family: str, method: str) -> None:
    model = with_biases(family)
    options = {**OPTIONS[method], **families.BELOW.get(method, {})}
    inputs = families.batch((6, 4)) if method == "integrated_gradients" else families.batch()
    scores = attribute(model, inputs, method, target=1, **options)
    with engines.sites_alone():
        assert close(scores, attribute(model, inputs, method, target=1, **options), families.arithmetic(family))
    assert scores.abs().sum() > 0


@pytest.mark.parametrize("book", BY_GRADIENT)
@pytest.mark.parametrize("family", SEVERAL)
def test_relevance_depends_neither_on_the_batch_nor_on_padding(family: str, book: str) -> None:
    model, inputs = with_biases(family), families.batch(extra=1)
    together = record(model, inputs, book=book, maps=False)
    batched = together.relevance(together.hidden[0], book, 1)
    for row, length in enumerate((9, 5, 7)):
        single = record(model, families.alone(inputs, row), book=book, maps=False)
        expected = single.relevance(single.hidden[0], book, 1)[0]
        assert close(batched[row, :length], expected, families.arithmetic(family))


def test_an_answer_is_explained_in_parts_by_one_run() -> None:
    model = zoo.build("bert", head=zoo.ANSWER)
    inputs, counts = zoo.batch(model, head=zoo.ANSWER), forwards_of(model)
    scores = attribute(model, inputs, "attn_lrp", target=(1, 3))
    assert counts == {"forward": 1}
    with engines.sites_alone():
        assert close(scores, attribute(model, inputs, "attn_lrp", target=(1, 3)))


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.LayerNorm((5, 8)), nn.RMSNorm(8), nn.RMSNorm((5, 8))], ids=str)
def test_norms_of_torch(norm: nn.Module) -> None:
    generator = torch.Generator().manual_seed(3)
    for parameter in norm.parameters():
        parameter.data = 1 + 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    model = engines.Classifier(above=norm)
    assert not engines.apart(model, TWO_TEXTS, 1)
    assert engines.gaps(model, TWO_TEXTS, 1).keys() == {
        f"{book} {place}" for book in BY_GRADIENT for place in ("inputs", "states")
    }


def test_gradients_of_several_books_are_told_apart() -> None:
    """Of one prediction, and with maps asked for after states."""
    model, inputs = with_biases("bert"), families.batch()
    prediction = Prediction(model, batch_of(model, inputs), 1, needs=Needs(maps=False))
    by_sites = record(model, inputs)
    for book in (None, *BY_GRADIENT):
        expected = by_sites.carried((*by_sites.hidden, *by_sites.attention), book, 1)
        gradients = prediction.gradients(book)
        for one, other in zip((*gradients.hidden, *gradients.attention), expected, strict=True):
            assert close(one, other)


# Which books, and what a trace of one gives


def test_which_books_act_while_a_model_runs() -> None:
    assert {name for name, book in BOOKS.items() if acts_while_running(book)} == set(BY_GRADIENT)
    assert not acts_while_running(with_gamma(CONSERVATIVE, 0.25))
    assert not acts_while_running(CONSERVATIVE.before("attend", lambda site, relevance: relevance))
    with pytest.raises(BadOption, match="do not act while a model runs"):
        record(families.build("bert"), families.batch(), book=with_gamma(CONSERVATIVE, 0.25))


def test_a_trace_of_one_book_gives_no_other() -> None:
    trace = record(families.build("bert"), families.batch(), book="attn", maps=False)
    with pytest.raises(BadOption, match="recorded with book='attn'"):
        trace.relevance(trace.hidden[0], "conservative")
    with pytest.raises(BadOption, match="maps=False"):
        _ = trace.attention


def test_what_a_run_records_for_several() -> None:
    attn, conservative = (
        Needs(maps=False, book=BOOKS[name], last=True, once=True) for name in ("attn", "conservative")
    )
    assert attn | attn == Needs(maps=False, book=BOOKS["attn"], last=True)  # a second pass is to come
    assert (attn | conservative).book is BOOKS["attn"]  # another run serves the other
    assert attn | Needs(maps=True) == Needs(maps=True)
    assert attn | Needs(maps=False, sites=True, last=True) == Needs(maps=False, sites=True, last=True)
    assert (Needs(book=PLAIN, biases=True) | Needs(book=PLAIN)).biases
    assert Needs.of_all([]) == Needs(maps=False)
    assert Needs.of_all([attn]) == attn
    assert Needs(maps=False, sites=True).opened
    assert (Needs(), Needs(maps=False), Needs(sites=True)) == (MAPS, GRADIENT, RELEVANCE)


def test_needs_under_a_book_are_sites_where_its_rules_cannot_act_during_a_run() -> None:
    own = Needs(maps=False, biases=True, once=True)
    assert own.under(BOOKS["attn"]) == replace(own, book=BOOKS["attn"])
    assert own.under(BOOKS["z_plus"]) == Needs(maps=False, sites=True)
    assert own.under(None) == GRADIENT
    assert not Needs(tap=positive_products).under(PLAIN).maps
    assert Needs(tap=positive_products).under(None) == MAPS


@pytest.mark.parametrize("needs", [GRADIENT, RELEVANCE, lambda **options: GRADIENT.under(BOOKS[options["book"]])])
def test_a_method_declares_its_needs_as_a_value_or_by_its_options(needs: Any) -> None:
    def mine(prediction: Prediction, *, book: str = "attn") -> Tensor:
        """It only runs the model."""
        return prediction.embeddings.sum(-1)

    made = Method("mine", mine, "test", signed=True, class_specific=False, paper="–", needs=needs)
    assert made.needs_for({"book": "attn"}) == (needs(book="attn") if callable(needs) else needs)
    assert Method("mine", mine, "test", signed=True, class_specific=False, paper="–").needs_for({}) == MAPS


# Half precision


def long_model(family: str, activation: str, *, with_zeros: bool) -> hf.PreTrainedModel:
    """A model of 192 positions in float32; `with_zeros`, a quarter of its activations are of exactly 0."""
    torch.manual_seed(11)
    config = families.CONFIGS[family]()
    config.num_labels, config.max_position_embeddings, config.num_hidden_layers = 3, 192, 3
    config.hidden_size, config.intermediate_size, config.hidden_act = 64, 96, activation
    config.head_dim = 16
    model = hf.AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa").eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.12)
        if with_zeros and ("gate_proj" in name or "intermediate.dense" in name):
            parameter.data[: parameter.shape[0] // 4] = 0
    return model


@pytest.mark.parametrize("method", ["attn_lrp", "cp_lrp"])
@pytest.mark.parametrize(("family", "activation"), [("bert", "gelu_new"), ("llama", "silu"), ("bert", "relu")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("with_zeros", [False, True], ids=["", "zeros"])
def test_half_precision_ranks_units_no_worse_than_opened_attention(
    with_zeros: bool, dtype: torch.dtype, family: str, activation: str, method: str
) -> None:
    """By the sites, a ratio `0 / 0` is no number in float16: there, the scores are compared with float32 alone."""
    model, inputs = long_model(family, activation, with_zeros=with_zeros), families.batch((160, 128, 144))
    exact = attribute(model, inputs, method, target=1)
    model = model.to(dtype)
    scores = attribute(model, inputs, method, target=1)
    assert torch.isfinite(scores).all()
    least = 0.98 if dtype == torch.bfloat16 else 0.995
    opened: list[Tensor] = []
    with engines.sites_alone():
        refusal = engines.refusal_of(lambda: opened.append(attribute(model, inputs, method, target=1)))
    assert "not numbers" in refusal if with_zeros and dtype == torch.float16 else not refusal
    for row, length in enumerate((160, 128, 144)):
        rank = spearmanr(scores[row, :length], exact[row, :length]).statistic
        assert rank >= least
        for others in opened:
            assert rank >= spearmanr(others[row, :length], exact[row, :length]).statistic - 0.005


# A model is given back as it was


@pytest.mark.parametrize("maps", [False, True], ids=["fused", "opened"])
@pytest.mark.parametrize("book", [None, *BY_GRADIENT])
def test_the_model_is_given_back_as_it_was(book: str | None, maps: bool) -> None:
    for family in ("bert", "llama"):
        model = families.build(family)
        before, training = state(model), model.training
        trace = record(model, families.batch(), relevance=False, book=book, maps=maps)
        trace.gradient(trace.hidden[0])
        assert not list(differences(before, state(model)))
        assert model.training is training


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for what, values in before.items():
        for name, value in values.items():
            other = after[what][name]
            if not (torch.equal(value, other) if isinstance(value, Tensor) else value == other):
                yield f"{what} {name}"


@pytest.mark.parametrize("needs", [Needs(maps=False), Needs(maps=False, book=CONSERVATIVE), Needs(sites=True)])
def test_also_if_it_raises(needs: Needs) -> None:
    model = families.build("llama", dtype=torch.float32)
    before = state(model)

    def fail(*_: Any) -> None:
        raise RuntimeError("in the middle")

    handle = model.model.layers[1].mlp.act_fn.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        recorded(model, families.batch(), needs)
    handle.remove()
    assert not list(differences(before, state(model)))


def test_also_if_it_is_not_followed() -> None:
    model = zoo.build("ibert")
    before = state(model)
    with pytest.raises(NotWhileRunning):
        record(model, zoo.batch(model), book="attn")
    assert not list(differences(before, state(model)))


# How far down a book has a rule


@pytest.mark.parametrize(
    ("model", "reach"),
    [
        (engines.Classifier(), "inputs"),
        (engines.Classifier(below=engines.Sine()), "states"),
        (engines.Classifier(above=engines.Sine()), "nowhere"),
    ],
    ids=["inputs", "states", "nowhere"],
)
@pytest.mark.parametrize("book", BY_GRADIENT)
def test_reach(model: nn.Module, reach: str, book: str) -> None:
    trace = record(model, TWO_TEXTS, book=book, maps=False)
    by_sites = record(model, TWO_TEXTS)
    assert trace.reach == reach
    for reaching, of in (("states", "hidden"), ("inputs", "embeddings")):
        one, other = (getattr(t, of)[0] if of == "hidden" else t.embeddings for t in (trace, by_sites))
        if reach in (reaching, "inputs"):
            assert close(trace.relevance(one, book, 1), by_sites.relevance(other, book, 1))
            continue
        with pytest.raises(UncoveredOperation, match="has no rule for Sin ") as refusal:
            by_sites.relevance(other, book, 1)
        with pytest.raises(UncoveredOperation) as while_running:
            trace.relevance(one, book, 1)
        assert str(while_running.value) == str(refusal.value)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("attn_lrp", {}),
        ("cp_lrp", {}),
        ("attn_lrp", {"at": "embedding_output"}),
        ("integrated_gradients", OPTIONS["integrated_gradients"]),
        ("layer_lrp", {}),
        ("full_grad", {"book": "attn"}),
        ("gae", {"book": "attn"}),
    ],
)
def test_methods_refuse_what_they_refused_by_sites(method: str, options: dict[str, Any]) -> None:
    for place in ("below", "above"):
        model = engines.Classifier(**{place: engines.Sine()})
        scores: list[Tensor] = []

        def explain() -> None:
            scores.append(attribute(model, TWO_TEXTS, method, target=1, **options))  # noqa: B023

        refusals = [engines.refusal_of(explain)]
        with engines.sites_alone():
            refusals.append(engines.refusal_of(explain))
        assert refusals[0] == refusals[1]
        if place == "below" and method in ("layer_lrp", "full_grad", "gae"):
            assert close(*scores)
        else:
            assert refusals[0].startswith("UncoveredOperation: the rule book ")
            assert " has no rule for Sin " in refusals[0]


def test_a_run_that_calls_other_functions_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    from whyformer.recorder import recording

    reach_of = recording._reach
    monkeypatch.setattr(recording, "_reach", lambda *of: looks.append("look") or reach_of(*of))  # type: ignore[func-returns-value]
    model = engines.Classifier()
    counts = forwards_of(model)
    scores = [attribute(model, TWO_TEXTS, "attn_lrp", target=1) for _ in range(3)]
    assert (len(looks), counts["forward"]) == (1, 3)
    assert close(scores[0], scores[2])
    function, model.layers[1].function = model.layers[1].function, engines.Sine()
    with pytest.raises(UncoveredOperation, match="Sin"):
        attribute(model, TWO_TEXTS, "attn_lrp", target=1)
    assert len(looks) == 2
    model.layers[1].function = nn.GELU()
    changed = attribute(model, TWO_TEXTS, "attn_lrp", target=1)
    assert len(looks) == 3
    with engines.sites_alone():
        assert close(changed, attribute(model, TWO_TEXTS, "attn_lrp", target=1))
    model.layers[1].function = function
    assert close(attribute(model, TWO_TEXTS, "attn_lrp", target=1), scores[0])
    assert len(looks) == 4  # an exchanged module makes the model a new one, even if it was there before


def test_what_is_known_of_a_model_goes_with_it() -> None:
    model = engines.Classifier()
    attribute(model, TWO_TEXTS, "attn_lrp", target=1)
    facts = weakref.ref(known(model))
    assert recording.REACHES in known(model)
    del model
    assert facts() is None


# What rules cannot follow is explained by sites


class MixingGELU(nn.Module):
    """By its name an activation, and more than one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.inner = nn.Linear(8, 8).double()

    def forward(self, x: Tensor) -> Tensor:
        """Mixes numbers, too."""
        return nn.functional.gelu(self.inner(x))


@pytest.mark.parametrize("book", BY_GRADIENT)
def test_what_is_not_followed_is_explained_by_sites(book: str) -> None:
    ibert = zoo.build("ibert")
    mixing = engines.Classifier(above=MixingGELU())
    for model, inputs in ((ibert, zoo.batch(ibert)), (mixing, TWO_TEXTS)):
        with pytest.raises(NotWhileRunning, match="is more than an activation"):
            record(model, inputs, book=book, maps=False)
        scores = attribute(model, inputs, "layer_lrp", target=1, book=book)
        with engines.sites_alone():
            assert close(scores, attribute(model, inputs, "layer_lrp", target=1, book=book))
    trace = record(mixing, TWO_TEXTS)
    expected = trace.relevance(trace.hidden[0], book, 1).sum(-1)
    assert close(scores, expected)


@pytest.mark.parametrize("family", sorted(FOLDED))
def test_a_map_that_is_reshaped_before_it_meets_its_values_is_left_to_sites(family: str) -> None:
    """Where its gradient is asked for; where it is not, the rules follow it all the same."""
    model, inputs = with_biases(family), families.batch()
    for method, falls_back in (("gae", True), ("cat", False)):
        options = {"book": "attn", **families.BELOW.get(method, {})}
        needs = whyformer.list_methods()[method].needs_for(options)
        prediction = Prediction(model, batch_of(model, inputs), 1, needs=needs)
        assert bool(prediction.trace.sites) is falls_back
        scores = whyformer.list_methods()[method](prediction, **options).total
        with engines.sites_alone():
            assert close(scores, attribute(model, inputs, method, target=1, **options), families.arithmetic(family))


# What a method costs


def forwards_of(model: nn.Module) -> Counter[str]:
    """How often a model is run."""
    counts: Counter[str] = Counter()
    model.register_forward_hook(lambda *_: counts.update(["forward"]))
    return counts


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often fused attention was opened, or left in its kernel."""
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts.update([name])
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr("whyformer.recorder.function_mode.attend", counted("opened", attend))
    monkeypatch.setattr(Recorder, "_fused", counted("fused", Recorder._fused))
    return counts


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *OPTIONS.items(),
        ("input_x_gradient", {}),
        ("saliency", {}),
        ("cat", {"states": "inputs"}),
        ("full_grad", {}),
        ("integrated_gradients", {"steps": 2, "baseline": "zero"}),
        ("occlusion", {"baseline": "zero"}),
        ("rollout", {}),
        ("gae", {}),
        ("lrp", {}),
        ("attn_lrp", {"gamma": 0.25}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_which_methods_open_fused_attention(method: str, options: dict[str, Any], opened: Counter[str]) -> None:
    opening = {"attcat", "gae", "grads", "rollout", "lrp"}
    attribute(families.build("bert"), families.batch(), method, target=1, **options)
    assert bool(opened["opened"]) is (method in opening or "gamma" in options)
    assert bool(opened["fused"]) is not bool(opened["opened"])


@pytest.mark.parametrize("method", ["attn_lrp", "cp_lrp", "layer_lrp"])
def test_one_run_and_one_backward_pass(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zoo.build("llama")
    inputs = zoo.batch(model, (7, 7))
    counts = forwards_of(model)
    backward = torch.autograd.grad

    def counted(*args: Any, **kwargs: Any) -> Any:
        counts.update(["backward"])
        return backward(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    for _ in range(2):  # the first run of a model is no other
        counts.clear()
        attribute(model, inputs, method, target=1)
        assert counts == {"forward": 1, "backward": 1}


@pytest.mark.parametrize("method", ["cat", "cam", "attcat", "gae", "grads", "full_grad"])
def test_methods_that_ask_where_the_head_reads_run_once(method: str) -> None:
    model = zoo.build("llama")
    counts = forwards_of(model)
    options = {**OPTIONS[method], **families.BELOW.get(method, {})}
    attribute(model, zoo.batch(model, (7, 7)), method, target=1, **options)
    assert counts == {"forward": 1}


def test_the_graph_is_freed_and_recorded_again_if_it_is_asked_for() -> None:
    model, inputs = families.build("bert"), families.batch()
    spec = method_specs(["attn_lrp"])[0]
    assert spec.needs.once
    prediction = Prediction(model, batch_of(model, inputs), 1, needs=spec.needs)
    first = spec(prediction).total
    trace: Trace = prediction.trace
    assert trace.spent
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(trace.logits.sum(), trace.hidden[0])
    assert close(spec(prediction).total, first)  # kept
    again = method_specs(["layer_lrp(book=attn)"])[0]
    other = prediction.towards(2)
    assert close(spec(other).total, attribute(model, inputs, "attn_lrp", target=2))
    assert close(again(other).total, attribute(model, inputs, "layer_lrp", book="attn", target=2, explains="logit"))
    conservative = method_specs(["cp_lrp"])[0]
    assert close(conservative(other).total, attribute(model, inputs, "cp_lrp", target=2))
    assert close(whyformer.list_methods()["rollout"](other).total, attribute(model, inputs, "rollout"))
    assert close(prediction.reader, Prediction(model, batch_of(model, inputs), 1).reader)


@pytest.mark.long
def test_memory_is_that_of_a_plain_gradient() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6, "num_attention_heads": 8}
    config = hf.LlamaConfig(**sizes, vocab_size=100, pad_token_id=0)
    model = hf.LlamaForSequenceClassification(config).eval().requires_grad_(False)
    ids = torch.randint(3, 100, (1, 512))

    def plain() -> None:
        embedded = model.get_input_embeddings()(ids).requires_grad_()
        model(inputs_embeds=embedded, attention_mask=torch.ones_like(ids)).logits[0, 1].backward()

    known = [*model.parameters(), *model.buffers(), ids]
    expected = peak_memory(plain, CPU, known)
    assert expected is not None
    for method in ("attn_lrp", "cp_lrp", "layer_lrp"):
        for _ in range(2):  # the first run is looked at
            taken = peak_memory(lambda: attribute(model, {"input_ids": ids}, method, target=1), CPU, known)  # noqa: B023
            assert taken is not None
            assert taken <= 1.3 * expected


# Of a language model, the positions that are asked for


@pytest.fixture
def causal() -> tuple[hf.PreTrainedModel, list[Any]]:
    """A language model, and the positions that it was asked for in each run."""
    model = zoo.build("llama", head=zoo.CAUSAL)
    asked: list[Any] = []

    def note(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        kept = kwargs.get("logits_to_keep")
        asked.append(kept.tolist() if isinstance(kept, Tensor) else kept)

    model.register_forward_pre_hook(note, with_kwargs=True)
    return model, asked


@pytest.mark.parametrize("method", ["attn_lrp", "input_x_gradient", "gae", "legrad", "lrp", "occlusion"])
@pytest.mark.parametrize(
    ("target", "versus", "kept"),
    [
        (None, None, [4, 6, 8]),
        (5, None, [4, 6, 8]),
        (5, 7, [4, 6, 8]),
        (None, "runner_up", [4, 6, 8]),
        ([(5, 3), (6, 4), (7, 2)], None, None),
        ((5, 3), None, None),
        ((5, 3), "runner_up", None),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_scores_are_those_of_all_positions(
    causal: tuple[Any, list[Any]],
    method: str,
    target: Any,
    versus: Any,
    kept: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, asked = causal
    inputs = zoo.batch(model)
    options = {"baseline": "zero"} if method == "occlusion" else {}
    scores = attribute(model, inputs, method, target=target, versus=versus, **options)
    assert asked[0] == kept
    monkeypatch.setattr("whyformer.recorder.recording._last_positions", lambda *_: None)
    expected = attribute(model, inputs, method, target=target, versus=versus, **options)
    assert asked[-1] is None or method == "occlusion"
    assert close(scores, expected, torch.float32)
    for row, length in enumerate((9, 5, 7)):
        if kept is not None:
            alone = attribute(model, zoo.alone(inputs, row), method, target=target, versus=versus, **options)[0]
            assert close(scores[row, :length], alone, torch.float32)


def test_left_padded_texts_end_at_one_position(causal: tuple[Any, list[Any]]) -> None:
    model, asked = causal
    attribute(model, left_padded(zoo.batch(model)), "attn_lrp")
    assert asked == [[8]]


def test_a_run_of_some_positions_says_nothing_of_others(causal: tuple[Any, list[Any]]) -> None:
    model, _ = causal
    inputs = zoo.batch(model)
    whole = record(model, inputs)
    trace = recorded(model, inputs, Needs(maps=False, book=CONSERVATIVE, last=True))
    assert trace.outputs.kept == (4, 6, 8)
    assert close(trace.logits, whole.logits[:, [4, 6, 8]], torch.float32)
    assert trace.outputs.predicted.tolist() == whole.outputs.predicted.tolist()
    for target in (5, (5, 4), [(5, 6), (6, 4), (7, 4)]):
        assert close(trace.output(target), whole.output(target), torch.float32)
    for place in (3, 0):  # between two of them, and below the first
        with pytest.raises(BadOption, match=r"kept the outputs at the positions \[4, 6, 8\] alone"):
            trace.output((5, place))


@pytest.mark.parametrize("kind", token_outputs.KINDS["next_token"])
def test_explain_asks_for_the_ends_or_a_position(kind: str) -> None:
    explainer = token_outputs.explainer("next_token", kind)
    texts = token_outputs.texts("next_token", kind)

    def explained(text: Any, **asked_for: Any) -> tuple[Any, list[int] | None]:
        """What is explained, and which positions the explained run was asked for."""
        asked: list[Any] = []
        model = explainer.subject.model
        with model.register_forward_pre_hook(lambda *call: asked.append(call[2]), with_kwargs=True):
            explanation = explainer.explain(text, "attn_lrp", **asked_for)
        kept = next((call["logits_to_keep"] for call in asked if "logits_to_keep" in call), None)
        return explanation, None if kept is None else kept.tolist()

    several, ends = explained(texts)
    assert ends == sorted(len(e.units) - 1 for e in several)
    for text, together in zip(texts, several, strict=True):
        end = len(together.units) - 1
        alone, kept = explained(text)
        placed, all_positions = explained(text, position=end)
        assert (kept, all_positions) == ([end], None)
        assert alone.target == placed.target == together.target
        for other in (alone, together):
            assert close(other.scores, placed.scores, torch.float32)
    against, kept = explained(texts[2], versus="runner_up")
    assert kept == [len(against.units) - 1]
    earlier, all_positions = explained(texts[2], position=3)
    assert all_positions is None
    assert earlier.target.place.token == 3
    assert not np.any(earlier.scores[4:])


def test_a_model_that_calls_other_functions_at_each_input() -> None:
    """It is run once for each explanation, and what is remembered of it does not grow without end."""
    model, inputs = copy.deepcopy(families.build("bert")), families.batch()
    times, runs = [0], [0]

    def scaled(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        runs[0] += 1
        for _ in range(times[0]):
            output = output * 1.0
        return output

    model.classifier.register_forward_hook(scaled)
    expected = whyformer.attribute(model, inputs, "attn_lrp", target=1)
    for number in range(recording.SIGNATURES + 4):
        times[0], runs[0] = number, 0
        assert close(whyformer.attribute(model, inputs, "attn_lrp", target=1), expected)
        assert runs[0] <= (2 if number < recording.SIGNATURES else 1)
    (reaches,) = known(model)[recording.REACHES].values()
    assert len(reaches) == recording.SIGNATURES
