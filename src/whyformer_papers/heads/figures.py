"""Head masks as matplotlib figures: where dependents stand, and which heads are of which kind."""

from typing import TYPE_CHECKING, Any

from whyformer.errors import BadInput
from whyformer.methods.head_mask import RELATIONS, HeadMask
from whyformer.show.pictures import ruled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {  # Okabe and Ito: told apart by all
    "positional": "#56b4e9",
    "nsubj": "#d55e00",
    "dobj": "#009e73",
    "amod": "#cc79a7",
    "advmod": "#f0e442",
}
KEPT, NEITHER, INK, STRONG, PALE = "#0072b2", "#eceff2", "#222222", "#0072b2", "#9dbcd4"
REACH = 8  # words on either side of the head; what is further away is counted together


def positions_figure(mask: HeadMask) -> "Figure":
    """Where the dependents of each relation stand, counted in words from their head (Mask-LRP, Figure 1)."""
    from whyformer.show.figures import NotebookFigure

    if mask.statistics is None or not mask.statistics.arc_counts.any():
        raise BadInput("this head mask knows no parse, so there are no relative positions to draw")
    drawn = NotebookFigure(figsize=(10, 6), layout="constrained")
    panels = drawn.subplots(2, 2, sharex=True, sharey=True)
    for relation, counts, axes in zip(RELATIONS, mask.statistics.arcs, panels.flat, strict=True):
        _positions(axes, relation, dict(counts))
    drawn.supxlabel("place of the dependent, in words from its head", fontsize=10)
    drawn.supylabel("share of the arcs (%)", fontsize=10)
    sentences = f"{mask.statistics.sentences:,} sentences"
    drawn.suptitle(f"Relative positions λ, {sentences}", x=0.01, ha="left", fontsize=11)
    return drawn


def _positions(axes: Any, relation: str, counts: dict[int, int]) -> None:
    places = [i for i in range(-REACH - 1, REACH + 2) if i]
    total = max(1, sum(counts.values()))
    held = dict.fromkeys(places, 0)
    for offset, count in counts.items():
        held[max(-REACH - 1, min(REACH + 1, offset))] += count
    best = max(counts, key=lambda i: (counts[i], -abs(i)), default=None)
    shares = [100 * held[i] / total for i in places]
    bars = axes.bar(places, shares, width=0.8, color=[STRONG if i == best else PALE for i in places])
    labels = [f"{100 * counts[i] / total:.0f}" if i == best else "" for i in places]
    axes.bar_label(bars, labels, fontsize=9, padding=2)
    axes.set_title(f"{relation}  ({sum(counts.values()):,} arcs)", loc="left", fontsize=10)
    ticks = [-REACH - 1, *range(-6, 7, 2), REACH + 1]
    axes.set_xticks(ticks, [f"<−{REACH}", *(_signed(i) for i in ticks[1:-1]), f">{REACH}"], fontsize=8)
    axes.margins(y=0.12)
    ruled(axes, axis="y")


def heads_figure(mask: HeadMask) -> "Figure":
    """The grid block × head, coloured by kind (Mask-LRP, Figure 5).

    A head of several kinds has a stripe of each. A positional head says its offset. A head that the mask keeps has a
    frame if the mask is not just the heads that have a kind, as a random or a corrupted one.
    """
    from matplotlib.patches import Rectangle

    from whyformer.show.figures import NotebookFigure

    layers, heads = mask.shape
    kinds = _kinds(mask)
    drawn = NotebookFigure(figsize=(0.5 * heads + 3.6, max(2.8, 0.5 * layers + 1.3)), layout="constrained")
    drawn.set_layout_engine("constrained", w_pad=0.1)
    axes = drawn.subplots()
    other = mask.statistics is not None and bool((mask.kept != mask.union.kept).any())
    for layer in range(layers):
        for head in range(heads):
            several = [kind for kind, flags in kinds.items() if flags[layer, head]]
            corner = head - 0.46, layer - 0.46
            axes.add_patch(Rectangle(corner, 0.92, 0.92, facecolor=NEITHER, linewidth=0))
            for number, kind in enumerate(several):
                width = 0.92 / len(several)
                place = corner[0] + number * width, corner[1]
                axes.add_patch(Rectangle(place, width, 0.92, facecolor=COLOURS.get(kind, KEPT), linewidth=0))
            if mask.statistics is not None and "positional" in several:
                offset = _signed(int(mask.statistics.offsets[layer, head]))
                middle, size = corner[0] + 0.46 / len(several), 8 if len(several) < 3 else 6
                axes.text(middle, layer, offset, ha="center", va="center", fontsize=size, color=INK)
            if other and mask.kept[layer, head]:
                axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=INK, linewidth=1.6))
    axes.set(xlim=(-0.6, heads - 0.4), ylim=(layers - 0.4, -0.6), aspect="equal", xlabel="head", ylabel="block")
    axes.set_xticks(range(heads), [str(n) for n in range(heads)], fontsize=8)
    axes.set_yticks(range(layers), [str(n) for n in range(layers)], fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{int(mask.kept.sum())} of {mask.kept.size} heads are kept", loc="left", fontsize=10)
    _legend(drawn, mask, other)
    return drawn


def _kinds(mask: HeadMask) -> dict[str, Any]:
    if mask.statistics is None:
        return {"kept": mask.kept}
    return {"positional": mask.positional, **mask.by_relation}


def _legend(drawn: "Figure", mask: HeadMask, other: bool) -> None:
    from matplotlib.patches import Patch

    kinds = _kinds(mask)
    entries = []
    for kind, flags in kinds.items():
        name = f"syntactic: {kind}" if kind in RELATIONS else kind
        entries.append(Patch(facecolor=COLOURS.get(kind, KEPT), label=f"{name} ({int(flags.sum())})"))
    none = int((~sum(kinds.values()).astype(bool)).sum())
    entries.append(Patch(facecolor=NEITHER, label=f"{'neither' if 'positional' in kinds else 'not kept'} ({none})"))
    if other:
        entries.append(Patch(fill=False, edgecolor=INK, linewidth=1.6, label=f"kept ({int(mask.kept.sum())})"))
    if mask.statistics is not None:
        both = int((mask.positional & mask.syntactic).sum())
        entries.append(Patch(alpha=0, label=f"several: a stripe of each; positional\nand syntactic ({both})"))
    drawn.legend(handles=entries, loc="outside right upper", fontsize=9, frameon=False)


def _signed(offset: int) -> str:
    return f"+{offset}" if offset > 0 else str(offset).replace("-", "−")
