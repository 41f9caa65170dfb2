"""Baselines that follow a path from a baseline to the embeddings, or compare the two ends of it."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import torch
from torch import Tensor, nn

from whyformer.caching import cached_property
from whyformer.errors import BadOption, UnsupportedModel
from whyformer.inputs.batch import Batch
from whyformer.inputs.hiding import Baseline, Zero
from whyformer.inputs.images import Patches
from whyformer.inputs.input import together
from whyformer.methods.gradient import GradientProtocol, _allennlp
from whyformer.methods.method import Anywhere, AtInput, EmbeddingPoint, GradientBook, Scores, method, place_of
from whyformer.methods.sampling import MISSES, CaptumDiagnostics, adding_up, captum_attr, one_by_one
from whyformer.models.errors import NO_GRADIENT, named_failures
from whyformer.perturb.engine import Copies, exchanging
from whyformer.perturb.out_of_memory import in_halves
from whyformer.prediction import Prediction
from whyformer.recorder import GRADIENT, Edit, Layers, Needs
from whyformer.recorder.function_mode import in_this_thread
from whyformer.recorder.lrp.rule_sets import gradient_book
from whyformer.recorder.recording import recorded, recorded_somehow
from whyformer.registry.options import Count

STEPS, ALLENNLP_STEPS = 50, 10
MOST_STEPS = 400  # as many are taken where fewer do not suffice, if nobody said how many
PathSteps = Annotated[
    int | None,
    Count(1, 2_000, "the points of the path come from a matrix of steps x steps, and no more were ever needed"),
]
Points = Annotated[int, Count(1, 1_000, "all points lie in memory at once")]
MORE_STEPS = (
    "more steps help (--steps), or a path to at='embedding_output' (--at embedding_output), or another baseline"
)
MORE_SAMPLES = "they do so on average only: more samples help (--samples)"
NOT_COVERED = "captum's rules of DeepLIFT do not cover attention and norms; use integrated_gradients or attn_lrp"
TWICE = "used more than once"  # what captum says of a module that DeepLift cannot follow


@method(
    family="path", signed=True, class_specific=True, paper="Sundararajan et al. 2017", passes="many", needs=GRADIENT
)
def integrated_gradients(
    prediction: Prediction,
    *,
    steps: PathSteps = None,
    at: AtInput = None,
    baseline: Baseline = "pad_attended",
    protocol: GradientProtocol = None,
    book: GradientBook = None,
) -> Scores:
    """The gradient along a straight path from a baseline, times the distance, summed over the embedding's width.

    Gauss-Legendre quadrature. The path begins where all units but special tokens are padding (or mask or unknown
    tokens, or zero embeddings). The scores add up to the difference of the outputs at its two ends, `expected`; `delta`
    reports by how much they do not, and a warning tells if it is more than 5 %. Without `steps` there are 50, doubled
    up to 400 while the scores miss by that much. The path lies at the token embeddings; for images, and with
    `at="embedding_output"`, after positions and norm; `at="pixels"` goes from an image whose patches are all hidden to
    the image. Thermostat's settings are `steps=25, at="embedding_output"`.
    `protocol="allennlp"` is the Decoded paper's "Integrated": 10 steps from zero embeddings, special tokens included,
    left end of each step; the mean loss gradient times the token embedding, summed over width, absolute, as shares of
    the sum. `book` names the rule book whose balanced gradient is taken at each point (LibraGrad); then the scores do
    not add up to that difference, and nobody expects it.
    """
    count = steps if steps is not None else ALLENNLP_STEPS if protocol else STEPS
    attr = captum_attr()
    if protocol == "allennlp":
        if count < 2:
            raise BadOption(f"protocol='allennlp' needs steps of at least 2; found {count}")
        if at in ("embedding_output", "pixels") or baseline not in ("pad_attended", "zero"):
            raise BadOption("protocol='allennlp' goes from zero to the token embeddings: leave `at` and `baseline` out")
        if book is not None:
            raise BadOption("protocol='allennlp' takes the plain gradient of the loss: leave `book` out")
        return _allennlp_integrated(prediction, attr, count)

    place, most = place_of(prediction, at), MOST_STEPS if steps is None and book is None else count

    def explain(example: Copies) -> tuple[Tensor, CaptumDiagnostics]:
        path, taken = replace(_InputPath.of(example, place), book=book), count
        integrating = attr.IntegratedGradients(path.outputs)
        while True:
            scores, report = path.scores(_integrated(integrating, path, taken, "gausslegendre"))
            if taken >= most or not report[MISSES]:
                return scores, {**report, "steps": torch.tensor(taken)}
            taken = min(2 * taken, most)

    return one_by_one(
        prediction,
        explain,
        baseline,
        runs=lambda _: count + 4,
        name="integrated_gradients",
        advice=MORE_STEPS,
        on_path=True,
    )


def _integrated(integrating: Any, path: "_InputPath", steps: int, rule: str) -> Tensor:
    """[units, width]."""
    integrating.gradient_func = path.gradients
    options = {"n_steps": steps, "method": rule, "internal_batch_size": path.at_once}
    return integrating.attribute(path.end, baselines=path.start, **options)[0].detach()  # type: ignore[no-any-return]


def _allennlp_integrated(prediction: Prediction, attr: Any, steps: int) -> Scores:
    prediction.loss(prediction.outputs.logits)  # refuses what has no loss

    def explain(example: Copies) -> tuple[Tensor, CaptumDiagnostics]:
        example.free = torch.ones_like(example.free)
        path = replace(_InputPath.of(example, "token_embeddings"), of_loss=True)
        integrating = attr.IntegratedGradients(path.outputs, multiply_by_inputs=False)
        return _integrated(integrating, path, steps, "riemann_left"), {}

    gradients = one_by_one(prediction, explain, "zero", runs=lambda _: steps + 1, on_path=True)
    return Scores(_allennlp(prediction, gradients.values), gradients.diagnostics, signed=False)


@method(family="path", signed=True, class_specific=True, paper="Lundberg & Lee 2017", passes="many", needs=GRADIENT)
def gradient_shap(
    prediction: Prediction,
    *,
    samples: Points = 5,
    at: EmbeddingPoint = "embedding_output",
    baseline: Baseline = "pad_attended",
    seed: int = 0,
) -> Scores:
    """The gradient at random points between a baseline and the embeddings, times the distance, summed over width.

    The mean of `samples` points of the path that `integrated_gradients` follows, so the scores add up to the difference
    of the outputs at its two ends only on average; `delta` reports by how much they do not. The defaults are
    Thermostat's.
    """
    attr = captum_attr()

    def explain(example: Copies) -> tuple[Tensor, CaptumDiagnostics]:
        path = _InputPath.of(example, at)
        sampling = attr.GradientShap(path.outputs)
        sampling.gradient_func = path.gradients
        return path.scores(sampling.attribute(path.end, baselines=path.start, n_samples=samples, stdevs=0.0)[0])

    return one_by_one(
        prediction,
        explain,
        baseline,
        runs=lambda _: samples + 4,
        seed=seed,
        name="gradient_shap",
        advice=MORE_SAMPLES,
        on_path=True,
    )


@method(
    family="path",
    signed=True,
    class_specific=True,
    paper="Shrikumar et al. 2017; Lundberg & Lee 2017",
    passes="many",
    needs=GRADIENT,
)
def deep_lift_shap(
    prediction: Prediction, *, at: EmbeddingPoint = "embedding_output", baseline: Baseline = "pad_attended"
) -> Scores:
    """DeepLIFT from two baselines, averaged: differences of activations in place of derivatives, times the distance.

    The baselines are the one asked for and zero embeddings; special tokens stay in both. captum's rules cover modules
    such as `nn.Tanh`, `nn.ReLU` and `nn.Softmax`: not attention, norms and GELU as Transformers compute them, where
    plain derivatives are taken. So the scores do not add up to the difference of the outputs; `delta` reports by how
    much.
    """
    attr = captum_attr()

    def explain(example: Copies) -> tuple[Tensor, CaptumDiagnostics]:
        path = _InputPath.of(example, at)
        zero = torch.where(example.free[:, None].to(path.end.device), 0, path.end)
        path = replace(path, start=torch.cat((path.start, zero)))
        with _modules_met(example.model) as modules:
            _ = path.at_ends
        with _nothing_left_at(example.model):
            lifting = attr.DeepLiftShap(_Network(path.outputs, modules))
            try:
                vectors = lifting.attribute(path.end, baselines=path.start)[0]
            except (AttributeError, RuntimeError):
                path.check_gradient()
                raise
        return path.scores(vectors)

    return one_by_one(
        prediction, explain, baseline, runs=lambda _: 9, seed=0, name="deep_lift_shap", advice=NOT_COVERED, on_path=True
    )


class _Network(nn.Module):
    """The explained output as a module, for captum; its rules are for those modules that embeddings flow through."""

    def __init__(self, outputs: Callable[[Tensor], Tensor], modules: Iterable[nn.Module]):
        super().__init__()
        self.outputs, self.met = outputs, tuple(modules)

    def forward(self, states: Tensor) -> Tensor:
        """The explained output, [copies]."""
        return self.outputs(states)

    def apply(self, fn: Callable[[nn.Module], None]) -> Self:
        """Do something to each module; hooks that it gets are for this thread alone."""
        for module in self.met:
            with _hooked_in_this_thread(module):
                fn(module)
        return self


@contextmanager
def _hooked_in_this_thread(module: nn.Module) -> Iterator[None]:
    """Hooks that the module gets are passed by in other threads, which may be running it."""
    kinds = ("register_forward_hook", "register_forward_pre_hook")
    for kind in kinds:
        register = getattr(module, kind)
        vars(module)[kind] = lambda hook, register=register: register(in_this_thread(hook))
    try:
        yield
    finally:
        for kind in kinds:
            del vars(module)[kind]


@contextmanager
def _modules_met(model: nn.Module) -> Iterator[dict[nn.Module, None]]:
    """Notes the modules that are run on something in the graph."""
    met: dict[nn.Module, None] = {}

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if any(isinstance(one, Tensor) and one.requires_grad for one in inputs):
            met[module] = None

    handles = [module.register_forward_pre_hook(in_this_thread(note)) for module in model.modules()]
    try:
        yield met
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _nothing_left_at(model: nn.Module) -> Iterator[None]:
    """captum takes its hooks off, also after an error, but not always the tensors that it left at activations."""
    before = {module: set(vars(module)) for module in model.modules()}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "\\s*Setting forward, backward hooks")
            yield
    except RuntimeError as error:
        if TWICE not in str(error):
            raise
        name = type(model).__name__
        raise UnsupportedModel(f"deep_lift_shap is not possible: {name} runs one activation module twice") from error
    finally:
        for module, names in before.items():
            for name in {"input", "output"} & (set(vars(module)) - names):
                delattr(module, name)


@dataclass(frozen=True)
class _InputPath:
    """The explained output of an example as a function of its embeddings, and the `start` and `end` of a path there.

    `start` holds one baseline or several, [baselines, units, width], `end` the example itself, [1, units, width]; at
    pixels they are images, [1, channels, height, width], of which `patches` tells the units.
    """

    example: Copies
    place: Anywhere
    first_layer: int
    start: Tensor
    end: Tensor
    of_loss: bool = False
    book: str | None = None
    patches: Patches | None = None

    @classmethod
    def of(cls, example: Copies, place: Anywhere) -> "_InputPath":
        """Run the example, and the example with a token or a blank patch in place of every free unit."""
        replacing = not isinstance(example.hide, Zero)  # zeros are zeros at the place itself
        free = example.free.nonzero().flatten().tolist()
        inputs = [example.without([]), example.without(free)] if replacing else [example.input]
        tensors = together(inputs, example.device)
        with exchanging(example.model, inputs, tensors.get("input_ids")):
            trace = recorded(example.model, tensors, GRADIENT)
        example.ran(len(inputs))
        if place == "pixels":
            assert trace.pixels is not None
            images = trace.pixels.detach().to(example.dtype)
            start = images[1:] if replacing else torch.zeros_like(images)
            return cls(example, place, -1, start, images[:1], patches=trace.patches)
        states = trace.embeddings if place == "token_embeddings" else trace.hidden[0]
        if states is None:
            raise BadOption("the model's token embeddings were not seen; use at='embedding_output'")
        states = states.detach().to(example.dtype)
        start = torch.where(example.free[:, None].to(states.device), states[1:] if replacing else 0, states[:1])
        first = trace.layers.calls[0] if isinstance(trace.layers, Layers) else -1
        return cls(example, place, first, start, states[:1])

    @property
    def at_once(self) -> int:
        """How many copies are run together with their gradients."""
        return self.example.at_once(gradients=True, whole_vocabulary=True)

    def outputs(self, states: Tensor) -> Tensor:
        """The explained output, [copies], for copies with these embeddings; in the graph."""
        copies = self._run(states)
        trace = copies.trace
        explained = copies.loss(trace.logits) if self.of_loss else trace.output(*copies.asked)
        return explained.to(self.example.dtype)

    def _run(self, states: Tensor, needs: Needs = GRADIENT) -> Prediction:
        """Copies of the example with these embeddings."""
        example, count = self.example, len(states)
        tensors = example.copies(count)
        edit = None
        if self.place == "pixels":
            tensors = {**tensors, "pixel_values": states.to(tensors["pixel_values"].dtype)}
        else:
            edit = Edit(self.place, lambda values: states.clone().to(values.dtype))
        trace = recorded_somehow(example.model, tensors, needs, edit=edit, first_layer=self.first_layer)
        versus = None if example.versus is None else example.versus.repeat_interleave(count, 0)
        chosen = example.target.repeat_interleave(count, 0), versus
        example.ran(count)
        return Prediction(example.model, Batch(tensors, None, None), chosen=chosen, trace=trace)

    def gradients(self, forward_fn: Any, inputs: tuple[Tensor, ...], *_: Any, **__: Any) -> tuple[Tensor, ...]:
        """What captum takes for its gradients: those of each copy's output, in batches that fit into memory."""
        gradients: list[Tensor] = []
        for states in inputs[0].detach().split(self.at_once):
            in_halves(lambda part: gradients.append(self._gradient(part)), states)
        return (torch.cat(gradients),)

    def _gradient(self, states: Tensor) -> Tensor:
        leaf = states.clone().requires_grad_()
        with torch.enable_grad(), named_failures("the model", backward=True):
            if self.book is None and self.place != "pixels":
                (gradient,) = torch.autograd.grad(self.outputs(leaf).sum(), leaf, allow_unused=True)
                if gradient is None:
                    raise UnsupportedModel(f"the model cannot be explained: {NO_GRADIENT}")
                return gradient
            copies = self._run(
                leaf, GRADIENT if self.book is None else Needs(maps=False, book=gradient_book(self.book))
            )
            trace, chosen = copies.trace, copies.asked
            variable = leaf if trace.pixels is None or self.place != "pixels" else trace.pixels
            carried = trace.carried(variable, self.book, *chosen) if self.book else trace.gradient(variable, *chosen)
            return carried.to(states.dtype)

    def check_gradient(self) -> None:
        """Raise if no gradient reaches the embeddings: captum's hooks fail then without naming the reason."""
        self._gradient(self.end)

    @cached_property
    def at_ends(self) -> Tensor:
        """The explained output at the end of the path, then at each start, [1 + baselines]."""
        ends = torch.cat((self.end, self.start)).split(self.at_once)
        return torch.cat([self.outputs(part).detach() for part in ends])

    def scores(self, vectors: Tensor) -> tuple[Tensor, CaptumDiagnostics]:
        """Vectors [units, width] summed over width, and how far they are from adding up to what the output gains."""
        whole, nothing = self.at_ends[0], self.at_ends[1:].double().mean()
        report = adding_up(self.example, vectors, whole, nothing)
        if self.book is not None:  # a balanced gradient is no derivative: nothing is missed
            report[MISSES] = torch.zeros_like(report[MISSES])
        if self.patches is None:
            return vectors.detach().sum(-1), report
        pixels = vectors.detach().sum(0)
        return self.patches.sums(pixels[None])[0], {**report, "pixels": pixels}
