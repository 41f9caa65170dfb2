"""Are the numbers of two commits the same, to the last bit?

    make same BASE=main~3                      # the working tree beside that commit
    python tools/same.py --write numbers.json  # the numbers of this tree alone

Both trees compute on this machine with one thread: the scores of every method on tiny models in float64 and float32,
an evaluation with a ceiling, trust, checked reasons and saved explanations. Each tree runs its own copy of this file,
so that names may change between them; a tree without one is run by this copy. Numbers are compared as hexadecimal
floats under keys that do not contain names of the package.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = ("bert", "distilbert", "albert", "deberta_v2", "modernbert", "gpt2", "bloom", "mistral", "llama")
TEXTS = (
    "a slow and dull film that is saved by its gorgeous acting",
    "a gorgeous, witty film",
    "it's not bad",
    "fine",
    "the plot is dull and the acting is worse than that of its lifeless sequel",
)
METHODS = "attn_lrp,attcat,transformer_attribution,random"
METRICS = "aopc,log_odds,comprehensiveness,sufficiency,sign_agreement,kendall_tau"
SHOWN = 12  # differences that are printed

Numbers = dict[str, list[str]]


def scores() -> Iterator[tuple[str, Any]]:
    """The scores of every method on every tiny model, in both precisions; of a refusal, that there was one."""
    import torch

    import whyformer
    from tests.helpers import families

    for family in FAMILIES:
        for dtype in (torch.float64, torch.float32):
            model, inputs = families.build(family, dtype), families.batch()
            for name in families.METHODS:
                found: Any = "refused"
                with suppress(whyformer.WhyformerError):
                    found = whyformer.attribute(model, inputs, name, target=1, **families.options(name, family))
                yield f"scores {name} {family} {dtype}", found


def evaluated() -> Iterator[tuple[str, Any]]:
    """Means and intervals of an evaluation with its ceiling."""
    from whyformer import Explainer

    rows = [(text, number % 2) for number, text in enumerate(TEXTS)]
    table = Explainer.load("sentiment").evaluate(rows, METHODS, metrics=METRICS, ceiling=True, progress=False)
    for method in table.methods:
        for number, metric in enumerate(METRICS.split(",")):
            cell = table[method, metric]
            yield f"evaluate {method} {number}", cell and [cell.mean, cell.low, cell.high, cell.n]


def explained() -> Iterator[tuple[str, Any]]:
    """What explanations hold, what was checked and trusted, and every value that is saved, in order."""
    from whyformer import Explainer

    explainer = Explainer.load("sentiment")
    for name in METHODS.split(","):
        for number, text in enumerate(TEXTS):
            e = explainer.explain(text, name)
            key = f"{name} {number}"
            yield f"explained {key}", e.scores
            assert e.checked is not None
            yield f"checked {key}", [[x.score, x.effect, x.output, x.probability] for x in e.checked.effects]
            yield f"saved {key}", list(leaves({k: v for k, v in e.to_dict().items() if k != "provenance"}))
            if name != "random":
                trust = e.trust()
                yield f"trust {key}", [trust.aopc, *trust.random, trust.ceiling]
    photograph = next((ROOT / "src" / "whyformer" / "bundled" / "pets").glob("*.jpg"))
    for name in ("full_grad(book=attn)", "attn_lrp", "transformer_attribution", "attcat"):
        e = Explainer.load("pets").explain(str(photograph), name)
        assert e.checked is not None
        yield f"image {name}", [*e.scores, *(effect.output for effect in e.checked.effects)]


def leaves(value: Any) -> Iterator[Any]:
    """The values of nested data in order, without the names that they have."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def written(value: Any) -> list[str]:
    """Numbers as hexadecimal floats, anything else as text."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    return [one.hex() if isinstance(one, float) else str(one) for one in leaves(plain)]


def numbers() -> Numbers:
    """All numbers of this tree."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return {key: written(value) for part in (scores, evaluated, explained) for key, value in part()}


def of_tree(tree: Path) -> Numbers:
    """The numbers of a tree, computed by a process of its own."""
    own = tree / "tools" / "same.py"
    script = own if own.exists() else Path(__file__)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "numbers.json"
        places = {"PYTHONPATH": os.pathsep.join(map(str, (tree / "src", tree))), "OMP_NUM_THREADS": "1"}
        environment = os.environ | places | {"HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}
        subprocess.run([sys.executable, script, "--write", out], cwd=tree, env=environment, check=True)
        found: Numbers = json.loads(out.read_text())
    return found


def compared(before: Numbers, after: Numbers) -> list[str]:
    """What differs, a line each."""
    lines = [f"only before: {key}" for key in before if key not in after]
    lines += [f"only after: {key}" for key in after if key not in before]
    for key in before:
        if key in after and before[key] != after[key]:
            lines.append(f"{key}: {gap(before[key], after[key])}")
    return lines


def gap(before: list[str], after: list[str]) -> str:
    """How far two lists of values are apart."""
    if len(before) != len(after):
        return f"{len(before)} values, then {len(after)}"
    pairs = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    try:
        apart = max(abs(float.fromhex(one) - float.fromhex(other)) for one, other in pairs)
    except ValueError:
        return f"{len(pairs)} of {len(before)} values, the first {pairs[0][0]!r}, then {pairs[0][1]!r}"
    return f"{len(pairs)} of {len(before)} values, up to {apart:.3g} apart"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the commit to compare the working tree with")
    parser.add_argument("--write", type=Path, help="write the numbers of this tree to a file")
    given = parser.parse_args()
    if given.write:
        given.write.write_text(json.dumps(numbers()))
        return
    if not given.base:
        parser.error("give --base COMMIT, or --write FILE")
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", base, given.base], cwd=ROOT, check=True)
        try:
            before, after = of_tree(base), of_tree(ROOT)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", base], cwd=ROOT, check=True)
    lines = compared(before, after)
    for line in lines[:SHOWN]:
        print(line)
    print(f"{len(lines)} of {len(after)} entries differ" if lines else f"the same: {len(after)} entries")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
