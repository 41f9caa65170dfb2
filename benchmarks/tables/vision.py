"""The tables of docs/results-vision.md: methods on real vision transformers and images.

python benchmarks/tables/vision.py --models DIR --data DIR --out runs [--only pets,tiny_imagenet] [--device cuda]
python benchmarks/tables/vision.py --out runs --summary

DIR of the models has the folders vit-pets and vit-tiny-imagenet; DIR of the data the folders pets (images with masks)
and tiny_imagenet. A run that was stopped goes on where it was. The summary reads what the runs wrote and prints every
number of docs/results-vision.md but those of two_pets.py.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.tables.shared import headed, journals_of, lines, marked, named, notes_of, parser_of, tables_of
from whyformer.datasets import open_dataset
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.table import Table
from whyformer.models.loading import load

ATTENTION = "random,centre,raw_attention,rollout,rollout(first_layer=1),alti"
OF_THE_PAPER = (
    "lrp,partial_lrp,grad_cam,transformer_attribution,transformer_attribution(first_layer=1),"
    "transformer_attribution(weight=attention),transformer_attribution(block=-1),transformer_attribution(block=1),"
    "transformer_attribution(block=-1, book=alpha_beta),transformer_attribution(block=1, book=alpha_beta)"
)
PLAIN = "gae,grads,att_grads,cam,cat(states=inputs),attcat(states=inputs),full_grad,input_x_gradient,saliency,legrad"
BALANCED = (
    "gae(book=conservative),grads(book=conservative),att_grads(book=conservative),cam(book=conservative),"
    "grad_cam(book=conservative),cat(states=inputs, book=conservative),attcat(states=inputs, book=conservative),"
    "full_grad(book=conservative),attcat(states=inputs, book=attn),cat(states=inputs, book=attn),full_grad(book=attn)"
)
RELEVANCE = "cp_lrp,attn_lrp,cp_lrp(gamma=0.05),attn_lrp(gamma=0.05),cp_lrp(gamma=0.25),attn_lrp(gamma=0.25)"
ONE_PASS = ",".join((ATTENTION, OF_THE_PAPER, PLAIN, BALANCED, RELEVANCE))
DEAR = (
    "random,attn_lrp,attcat(states=inputs, book=conservative),occlusion,integrated_gradients(steps=50),"
    "integrated_gradients(steps=50, book=conservative),stepwise(of=attn_lrp, steps=3),stepwise(of=attn_lrp, steps=10)"
)
SEGMENTATION = "pixel_accuracy,mean_average_precision,mean_iou,pointing_game"
PERTURBATION = (
    "positive_perturbation(target=predicted),negative_perturbation(target=predicted),"
    "positive_perturbation(target=gold),negative_perturbation(target=gold)"
)
FAITHFULNESS = "deletion_accuracy,deletion_accuracy(order=least),deletion,insertion"


@dataclass(frozen=True)
class Run:
    """One table: a model on some images."""

    title: str
    model: str
    data: str
    limit: int
    methods: str
    metrics: str
    ceiling: int = 0


RUNS = {
    "pets": Run("Pets, 400 images with masks", "vit-pets", "pets", 400, ONE_PASS, f"{SEGMENTATION},{FAITHFULNESS}"),
    "tiny_imagenet": Run(
        "Tiny-ImageNet, 1,000 images",
        "vit-tiny-imagenet",
        "tiny_imagenet",
        1000,
        ONE_PASS,
        f"{PERTURBATION},deletion_accuracy,deletion_accuracy(order=least)",
        ceiling=100,
    ),
    "pets_dear": Run("Pets, 50 images", "vit-pets", "pets", 50, DEAR, f"{SEGMENTATION},{FAITHFULNESS}"),
    "tiny_imagenet_dear": Run(
        "Tiny-ImageNet, 50 images",
        "vit-tiny-imagenet",
        "tiny_imagenet",
        50,
        DEAR,
        f"{PERTURBATION},deletion_accuracy,deletion_accuracy(order=least)",
    ),
}


def measure(name: str, run: Run, chosen: argparse.Namespace) -> None:
    """Run one table, and print it; it is kept in a folder of its name."""
    subject = load(chosen.models / run.model, device=chosen.device, dtype="float32")
    rows = open_dataset(chosen.data / run.data, labels=subject.labels, limit=min(run.limit, chosen.limit or run.limit))
    begun = time.perf_counter()
    methods = chosen.methods or run.methods
    how = {"out": chosen.out / name, "ceiling": min(run.ceiling, chosen.limit or run.ceiling)}
    table = evaluate(subject, rows, methods, chosen.metrics or run.metrics, rows_per_chunk=chosen.chunk, **how)
    print(f"## {name}: {time.perf_counter() - begun:.0f} s on {subject.device}\n\n{table.to_markdown()}", flush=True)


def shown(title: str, table: Table, metrics: Sequence[str]) -> str:
    """Some metrics of a table, methods in order of the first."""
    head = dict(zip(table.metrics, headed(table), strict=True))
    wanted = [metric for metric in metrics if metric in head]
    sign = -1 if table.facts[wanted[0]]["higher_is_better"] else 1
    means = {method: table[method, wanted[0]] for method in table.methods}
    order = sorted((m for m, cell in means.items() if cell), key=lambda m: sign * means[m].mean)  # type: ignore[union-attr]
    rows = [(named(method), *(marked(table, method, metric) for metric in wanted)) for method in order]
    return f"### {title}\n\n{lines(('method', *(head[metric] for metric in wanted)), rows)}\n"


def summary(out: Path) -> None:
    """Every table of the runs that are finished."""
    tables = tables_of(journals_of(out, RUNS))
    for name, table in tables.items():
        run = RUNS[name]
        groups = [group for group in (SEGMENTATION, FAITHFULNESS, PERTURBATION) if group.split(",")[0] in run.metrics]
        for group in groups:
            wanted = [metric for metric in table.metrics if metric.partition("(")[0] in group]
            print(shown(f"{run.title}: {', '.join(dict.fromkeys(w.partition('(')[0] for w in wanted))}", table, wanted))
        print("\n".join(notes_of(table)), "\n")


def main() -> None:
    """Measure, or print what was measured."""
    parser = parser_of(__doc__, RUNS)
    parser.add_argument("--limit", type=int, help="no more images than this")
    parser.add_argument("--methods", help="others than those of the tables")
    parser.add_argument("--metrics", help="others than those of the tables")
    parser.add_argument("--chunk", type=int, default=50, help="images that are measured and journalled together")
    chosen = parser.parse_args()
    if chosen.summary:
        summary(chosen.out)
        return
    for name in chosen.only.split(","):
        measure(name, RUNS[name], chosen)


if __name__ == "__main__":
    main()
