"""The tables of docs/masks.md: Mask-LRP's heads on real models and data, and what explaining through them gives.

python benchmarks/tables/masks.py find --models DIR --data DIR --out masks [--pictures docs/images] [--device cuda]
python benchmarks/tables/masks.py measure --models DIR --data DIR --out masks --run sst2-table [--device cuda]
python benchmarks/tables/masks.py summary --out masks [--pictures docs/images]
python benchmarks/tables/masks.py cost --models DIR --data DIR

`find` makes one mask per model from the treebank (DIR/ud_en_ewt/en_ewt-ud-dev.conllu) and one positional mask per data
set from its own texts; `measure` needs those. DIR of models and data as results.py has them. A run that was
stopped goes on where it was.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import numpy as np
import torch

from benchmarks.tables.shared import (
    RUNS,
    Run,
    headed,
    journals_of,
    lines,
    marked,
    mean_of,
    measure,
    named,
    notes_of,
    number,
    rows_of,
    save,
    tables_of,
)
from whyformer.attention_heads import HeadMask
from whyformer.evaluation.table import Table
from whyformer.inputs.encoding import collate, encode
from whyformer.models.loading import load
from whyformer.progress import counting
from whyformer_papers.heads import Treebank, head_statistics, positional_statistics
from whyformer_papers.reproduce import reproduction_named

TREEBANK = "en_ewt-ud-dev.conllu"
MODELS = ("sst2", "imdb", "agnews", "nli")
DATA = ("sst2", "imdb", "yelp", "mnli", "ag_news")  # one positional mask each
SEEDS = range(5)  # of random masks
CORRUPTED = range(3)  # seeds
SAMPLE = 300  # texts, for all tables but that of SST-2
RATES = tuple(rate / 10 for rate in range(1, 11))
MEASURES = ("aopc", "log_odds", "aopc(hide=pad_attended, protocol=mask_lrp)", "log_odds(protocol=mask_lrp)")
BASELINES = (
    "random,raw_attention,rollout,lrp,partial_lrp,transformer_attribution,transformer_attribution(row_normalised=true),"
    "gae,grads(query=all, positive=true),grad_cam(over=map),grads(times_attention=true),attcat,attcat(states=inputs),"
    "alti(distance_offset=1e-6),cp_lrp,attn_lrp"
)


ROWS = (  # the paper's rows, and the methods of its code
    ("RawAtt", "raw_attention"),
    ("Rollout", "rollout"),
    ("LRP", "lrp"),
    ("PartialLRP", "partial_lrp"),
    ("GAE", r"transformer_attribution\(row_normalised=true\)"),
    ("GAE", "gae"),
    ("CAM", r"grads\(positive=true, query=all\)"),
    ("GradCAM", r"grad_cam\(over=map\)"),
    ("GradCAM", r"grads\(times_attention=true\)"),
    ("AttCAT", r"attcat\(states=inputs\)"),
    ("ALTI", r"alti\(.*\)"),
    ("Random mask", r"mask_lrp\(head_mask=random.*variant=authors\)"),
    ("theirs", r"mask_lrp\(head_mask=treebank, variant=authors\)"),
    ("theirs", r"mask_lrp\(head_mask=treebank\)"),
    ("", "random"),
    ("", "attn_lrp"),
)


def masked(mask: Path, own: Path) -> list[str]:
    """Mask-LRP with a mask, one kind of its heads, random masks of its rate, and the data set's own positional mask."""
    heads, rate = f"head_mask={mask}", HeadMask.load(mask).rate
    found = [f"mask_lrp({heads})", f"mask_lrp({heads}, variant=authors)"]
    for variant in ("paper", "authors"):
        found += [f"mask_lrp({heads}, only={kind}, variant={variant})" for kind in ("positional", "syntactic")]
        found += [f"mask_lrp(head_mask=random, rate={rate:.6f}, seed={s}, variant={variant})" for s in SEEDS]
        found += [f"mask_lrp(head_mask={own}, variant={variant})"]
    return found


def corrupted(mask: Path, variant: str) -> list[str]:
    """Mask-LRP with 10, …, 100 % of the mask's zeros switched on, by three seeds."""
    start = f"mask_lrp(head_mask={mask}, variant={variant}"
    every = [f"{start}, corrupted={rate}, seed={seed})" for rate in RATES[:-1] for seed in CORRUPTED]
    return [f"{start})", *every, f"{start}, corrupted=1.0)"]


@dataclass(frozen=True)
class Part:
    """One run: a data set, and which methods are measured on it."""

    data: str
    kind: str  # table, paper or authors

    @property
    def run(self) -> Run:
        """The data set and its model; all of SST-2, a sample of the others."""
        run = RUNS[self.data]
        return run if self.data == "sst2" else replace(run, limit=None, sample=SAMPLE)

    def methods(self, out: Path) -> list[str]:
        """The methods as they are written."""
        mask, own = out / f"heads-{RUNS[self.data].model}.json", out / f"positional-{self.data}.json"
        if self.kind == "table":
            return [*re.split(r",(?![^(]*\))", BASELINES), *masked(mask, own)]
        return ["transformer_attribution", *corrupted(mask, self.kind)]


PARTS = {f"{data}-table": Part(data, "table") for data in ("sst2", "imdb", "yelp", "mnli")} | {
    f"sst2-{variant}": Part("sst2", variant) for variant in ("paper", "authors")
}


def find(chosen: argparse.Namespace) -> None:
    """Make the masks."""
    chosen.out.mkdir(parents=True, exist_ok=True)
    subjects = {name: load(chosen.models / name, device=chosen.device, dtype="float32") for name in MODELS}
    for name, subject in subjects.items():
        with counting(name):
            treebank = Treebank(chosen.data / "ud_en_ewt" / TREEBANK)
            mask = head_statistics(
                subject,
                treebank,
            )
        mask.save(chosen.out / f"heads-{name}.json")
        print(f"{name}, treebank: {mask}", flush=True)
    for name in DATA:
        subject = subjects[RUNS[name].model]
        texts = [example.text for example in rows_of(chosen.data, RUNS[name], subject)]
        with counting(name):
            mask = positional_statistics(
                subject,
                texts,
            )
        mask.save(chosen.out / f"positional-{name}.json")
        print(f"{name}, its own {len(texts)} texts: {mask}", flush=True)


def measure_part(chosen: argparse.Namespace) -> None:
    """Measure one run, without a ceiling."""
    part = PARTS[chosen.run]
    metrics = MEASURES if part.kind == "table" else MEASURES[:2]
    measure(chosen.run, replace(part.run, ceiling=0), chosen, part.methods(chosen.out), metrics)


def cost(chosen: argparse.Namespace) -> None:
    """What the statistics of 2,000 sentences cost beside plain forward passes over them, by processor time."""
    torch.set_num_threads(1)
    subject = load(chosen.models / "sst2", dtype="float32")
    sentences = list(islice(Treebank(chosen.data / "ud_en_ewt" / TREEBANK), 2000))
    size = 32

    def forwards() -> None:
        for start in range(0, len(ordered), size):
            batch = collate(subject, ordered[start : start + size])
            with torch.no_grad():
                subject.model(**batch.tensors)

    found: dict[str, list[float]] = {"forward passes": [], "statistics": []}
    for _ in range(chosen.rounds):
        begun = time.process_time()
        head_statistics(subject, sentences, batch_size=size)
        found["statistics"].append(time.process_time() - begun)
        ordered = sorted((encode(subject, s.text) for s in sentences), key=lambda encoded: len(encoded.units))
        begun = time.process_time()
        forwards()
        found["forward passes"].append(time.process_time() - begun)
    plain, counted = (min(found[name]) for name in ("forward passes", "statistics"))
    pairs = zip(found["statistics"], found["forward passes"], strict=True)
    ratios = ", ".join(f"{one / other:.2f}" for one, other in pairs)
    print(f"2,000 sentences: forward passes {plain:.1f} s, statistics {counted:.1f} s of one processor")
    print(f"ratio {counted / plain:.2f} (of the rounds: {ratios}); the statistics include tokenizing and hashing")


def by_block(flags: np.ndarray) -> str:
    """How many heads of each block."""
    return " ".join(str(int(count)) for count in flags.sum(1))


def heads_table(out: Path) -> str:
    """Every mask: how many heads of which kind in which block."""
    rows = []
    for path in sorted(out.glob("*.json")):
        mask = HeadMask.load(path)
        assert mask.statistics is not None
        parsed = path.name.startswith("heads-")
        kinds = [f"{int(found.sum())} ({by_block(found)})" for found in (mask.positional, mask.syntactic)]
        relations = ", ".join(f"{name} {int(found.sum())}" for name, found in mask.by_relation.items() if found.any())
        name = path.stem.partition("-")[2]
        said = f"`{name}`, treebank" if parsed else f"`{RUNS[name].model}`, texts of {RUNS[name].title}"
        texts = f"{mask.provenance['sentences']:,}"
        rows.append([said, texts, str(int(mask.kept.sum())), kinds[0], kinds[1] if parsed else "–", relations or "–"])
    head = [
        "model and corpus",
        "texts",
        "kept of 72",
        "positional (blocks 0 … 5)",
        "syntactic (blocks 0 … 5)",
        "by relation",
    ]
    return lines(head, rows)


def depth_table(out: Path) -> str:
    """The mean block of the heads of each kind, and of all heads."""
    rows = []
    for path in sorted(out.glob("heads-*.json")):
        mask = HeadMask.load(path)
        blocks = np.arange(mask.shape[0])[:, None] * np.ones(mask.shape)
        shown = [f"{blocks[found].mean():.2f}" if found.any() else "–" for found in (mask.positional, mask.syntactic)]
        rows.append([f"`{path.stem.partition('-')[2]}`", *shown, f"{blocks.mean():.2f}"])
    return lines(["mean block, 0 is the first", "positional", "syntactic", "all heads"], rows)


def readable(label: str) -> str:
    """A method's label without the folder of a mask."""
    label = re.sub(r"head_mask=[^,)]*heads-\w+\.json", "head_mask=treebank", label)
    return re.sub(r"head_mask=[^,)]*positional-\w+\.json", "head_mask=own texts", label)


def table_of(table: Table) -> str:
    """A table with the random masks as one row, mean ± standard deviation over the seeds."""
    rows: list[list[str]] = []
    drawn: dict[str, list[str]] = {}
    for method in table.methods:
        if "head_mask=random" in method:
            drawn.setdefault(re.sub(r", (rate|seed)=[\d.]+", "", method), []).append(method)
        else:
            rows.append([named(readable(method)), *(marked(table, method, metric) for metric in table.metrics)])
    for label, methods in drawn.items():
        spread = [[mean_of(table, method, metric) for method in methods] for metric in table.metrics]
        rows.append([f"`{label}`, {len(methods)} seeds", *(f"{fmean(s):.3f} ± {stdev(s):.3f}" for s in spread)])
    return lines(["method", *headed(table)], rows)


def beside(tables: dict[str, Table]) -> str:
    """The rows of the paper's Tables 1 and 4, AOPC / log-odds under its protocol: published, and here."""
    published: dict[Any, Any] = {}
    for name in ("mask-lrp-table-1", "mask-lrp-table-4"):
        published |= reproduction_named(name).published
    shown = {
        RUNS[part.data].title: tables[name] for name, part in PARTS.items() if name in tables and part.kind == "table"
    }
    rows = []
    for label, pattern in ROWS:
        cells = []
        for title, table in shown.items():
            methods = [method for method in table.methods if re.fullmatch(pattern, readable(method))]
            said = [published.get((label, title, measure)) for measure in ("AOPC", "LOdds")]
            here = [fmean(mean_of(table, method, metric) for method in methods) for metric in table.metrics[2:]]
            cells += [" / ".join("–" if one is None else f"{one.value:.3f}" for one in said)]
            cells += [" / ".join(f"{one:.3f}" for one in here)]
        named_so = f"`{readable(methods[0])}`" if len(methods) == 1 else f"`authors`, {len(methods)} seeds"
        rows.append([f"{label}: {named_so}" if label else named_so, *cells])
    return lines(["AOPC / LOdds", *(part for title in shown for part in (f"{title}, published", "here"))], rows)


def corruption(tables: dict[str, Table]) -> Iterator[tuple[str, str, list[float], list[list[float]]]]:
    """Of every variant and metric: where, and the means there, one for each seed."""
    for variant, table in tables.items():
        for metric in MEASURES[:2]:
            curve: dict[float, list[float]] = {}
            for method in table.methods:
                if method.startswith("mask_lrp"):
                    rate = re.search(r"corrupted=([\d.]+)", method)
                    curve.setdefault(float(rate[1]) if rate else 0.0, []).append(mean_of(table, method, metric))
            yield variant, metric, sorted(curve), [curve[rate] for rate in sorted(curve)]


def corruption_table(tables: dict[str, Table]) -> str:
    """The means over the seeds, ± their standard deviation; 100 % beside all heads."""
    rows = []
    for variant, metric, _, means in corruption(tables):
        shown = [f"{fmean(own):.3f}" + (f" ± {stdev(own):.3f}" if len(own) > 1 else "") for own in means]
        whole = number(tables[variant]["transformer_attribution", metric], interval=False)
        rows.append([f"`{variant}`, `{metric}`", *shown, whole])
    rates = (f"{rate:.0%}" for rate in (0.0, *RATES))
    return lines(["zeros switched on", *rates, "`transformer_attribution`"], rows)


def draw(out: Path, tables: dict[str, Table], folder: Path) -> None:
    """Pictures: the grids, where dependents stand, and the corruption curve."""
    from matplotlib.figure import Figure

    from whyformer_papers.heads.figures import heads_figure, positions_figure

    folder.mkdir(parents=True, exist_ok=True)
    treebank = HeadMask.load(out / "heads-sst2.json")
    save(heads_figure(treebank), folder / "heads-sst2.png")
    save(positions_figure(treebank), folder / "positions-ewt.png")
    for name in DATA:
        save(heads_figure(HeadMask.load(out / f"positional-{name}.json")), folder / f"heads-positional-{name}.png")
    if not tables:
        return
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    for axes, metric in zip(figure.subplots(1, 2), MEASURES[:2], strict=True):
        for variant, own, rates, means in corruption(tables):
            if own == metric:
                spread = [stdev(seeds) if len(seeds) > 1 else 0 for seeds in means]
                axes.errorbar(
                    [100 * r for r in rates],
                    [fmean(m) for m in means],
                    spread,
                    marker="o",
                    label=f"mask_lrp, {variant}",
                )
        whole = mean_of(next(iter(tables.values())), "transformer_attribution", metric)
        axes.axhline(whole, linestyle="--", color="0.4", label="transformer_attribution")
        axes.set_xlabel("zeros of the mask switched on, %")
        axes.set_title(f"{metric} {'↑' if metric == 'aopc' else '↓'}", loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    save(figure, folder / "corruption-sst2.png")


def summary(chosen: argparse.Namespace) -> None:
    """Every number of docs/masks.md."""
    print("\n\n".join((heads_table(chosen.out), depth_table(chosen.out))))
    tables = tables_of(journals_of(chosen.out, PARTS))
    for name, table in tables.items():
        if PARTS[name].kind == "table":
            print(f"\n## {name}\n\n{table_of(table)}\n\n" + "\n".join(notes_of(table)))
    print(f"\n## Beside the published numbers\n\n{beside(tables)}")
    curves = {PARTS[name].kind: table for name, table in tables.items() if PARTS[name].kind != "table"}
    if curves:
        print(f"\n## corruption\n\n{corruption_table(curves)}")
    if chosen.pictures:
        draw(chosen.out, curves, chosen.pictures)


def main() -> None:
    """Find, measure or summarise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("find", "measure", "summary", "cost"))
    parser.add_argument("--models", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", choices=PARTS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    {"find": find, "measure": measure_part, "summary": summary, "cost": cost}[chosen.what](chosen)


if __name__ == "__main__":
    main()
