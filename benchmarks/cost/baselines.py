"""What the perturbation and path-gradient baselines cost beside the model's own forward + backward pass.

    python benchmarks/cost/baselines.py                                    # a few sentences, the bundled model
    python benchmarks/cost/baselines.py --texts DIR/sst2/validation.parquet --limit 64
    python benchmarks/cost/baselines.py --texts … --device cuda --limit 500 --methods "lime,lime(samples=1000),attn_lrp"

Any method can be named, with its options. Texts are explained in batches; in each batch the plain pass and every method
are timed in turn, so that a slow moment of the machine falls on all of them, and the times are added up. The plain pass
(f+b) is the stock model with eager attention, its parameters frozen, and the gradient of the predicted class's logit
taken to the embeddings, in the same batches.

*evaluations* counts the copies of a text that the model is run on, the run that finds the prediction included; *with
gradients* are those that keep a graph. *gap* is for methods that report `delta`: how far the scores are from adding up
to what they should, as a share of that; the median over the texts.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])


from benchmarks.cost.timing import plain, seconds
from benchmarks.texts import texts_of
from whyformer import Explainer
from whyformer.inputs.encoding import Batch, collate, encode
from whyformer.methods.specs import MethodSpec, method_specs
from whyformer.models.loading import Subject
from whyformer.prediction import Prediction

TEXTS = (
    "unflinchingly bleak and desperate",
    "so unremittingly awful that labeling it a dog probably constitutes cruelty to canines .",
    "birthday girl is an amusing joy ride , with some surprisingly violent moments .",
    "more romantic , more emotional and ultimately more satisfying than the teary-eyed original .",
)
METHODS = (
    "input_x_gradient",
    "attn_lrp",
    "integrated_gradients",
    "integrated_gradients(steps=25,at=embedding_output)",
    "integrated_gradients(protocol=allennlp)",
    "gradient_shap",
    "deep_lift_shap",
    "occlusion",
    "lime",
    "kernel_shap",
    "shapley_value_sampling",
)


@dataclass
class Cost:
    """Seconds, copies run, those of them with a graph, and the gaps of each text."""

    seconds: float = 0.0
    runs: int = 0
    with_graph: int = 0
    gaps: list[float] = field(default_factory=list)

    def count(self, module: Any, given: Any, output: Any) -> None:
        """A forward hook."""
        self.runs += len(output.logits)
        self.with_graph += len(output.logits) * output.logits.requires_grad


def explain(subject: Subject, batch: Batch, spec: MethodSpec, cost: Cost) -> None:
    """Explain a batch from the beginning, and note what it took."""
    handle = subject.model.register_forward_hook(cost.count)
    try:
        prediction = Prediction(subject.model, batch, relevance=spec.of.needs_for(spec.options).sites)
        scores = spec(prediction)
    finally:
        handle.remove()
    delta = scores.diagnostics.get("delta")
    if delta is not None:
        sums = scores.total.double().sum(1).cpu()
        cost.gaps += (delta / (sums - delta)).abs().tolist()


def measure(subject: Subject, stock: Any, texts: list[str], specs: tuple[MethodSpec, ...], size: int) -> None:
    """Print the table."""
    costs = {spec.label: Cost() for spec in specs}
    whole = 0.0
    batches = [texts[start : start + size] for start in range(0, len(texts), size)]
    for number, some in enumerate((batches[0], *batches)):  # the first one twice, to warm up
        batch = collate(subject, [encode(subject, text) for text in some])
        taken = seconds(partial(plain, stock, batch.tensors), subject.device.type)
        whole += taken if number else 0
        for spec in specs:
            cost = costs[spec.label] if number else Cost()
            cost.seconds += seconds(partial(explain, subject, batch, spec, cost), subject.device.type)
    tokens = sum(len(encode(subject, text).units) for text in texts) / len(texts)
    print(f"{len(texts)} texts of {tokens:.1f} tokens on average, in batches of {size}, on {subject.device.type}")
    print(f"forward + backward: {1e3 * whole / len(texts):.2f} ms a text\n")
    print("| | evaluations a text | with gradients | time ÷ f+b | gap |")
    print("|---|---|---|---|---|")
    for name, cost in costs.items():
        gap = f"{statistics.median(cost.gaps):.2g}" if cost.gaps else ""
        each = (cost.runs / len(texts), cost.with_graph / len(texts))
        print(f"| `{name}` | {each[0]:.1f} | {each[1]:.1f} | {cost.seconds / whole:.1f} | {gap} |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="one text per line, or Parquet with a column sentence or text")
    parser.add_argument("--model", default="sentiment")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--batch", type=int, default=16, help="texts explained together")
    parser.add_argument("--methods", default=",".join(METHODS), help="names with commas, with options if you like")
    arguments = parser.parse_args()
    texts = texts_of(arguments.texts, arguments.limit) if arguments.texts else list(TEXTS)[: arguments.limit]
    subject, stock = (Explainer.load(arguments.model, device=arguments.device).subject for _ in range(2))
    plain_model: Any = stock.model
    plain_model.set_attn_implementation("eager")
    plain_model.requires_grad_(False)
    measure(subject, plain_model, texts, method_specs(arguments.methods), arguments.batch)


if __name__ == "__main__":
    main()
