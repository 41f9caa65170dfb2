"""Write the generated parts of the docs: what a page has between `<!-- made by make docs: NAME -->` and `<!-- end -->`.

make docs              # these parts, the short tables of results, and the pages of architectures, which take long
python tools/docs.py   # these parts only
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[1])

import whyformer
from whyformer.perturb import HIDES
from whyformer.registry.options import Option
from whyformer.registry.specs import Registered
from whyformer_papers.results import write_summaries

WAY_TO_HIDE = "a [way to hide](metrics.md#ways-to-hide)"
DOCS = Path(__file__).resolve().parents[1] / "docs"
PART = re.compile(r"(<!-- made by make docs: (?P<name>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def described(option: Option) -> str:
    """Return the name, values and default of an option."""
    values = option.takes.split(" | ")
    if set(HIDES.known) <= set(values):
        values = [WAY_TO_HIDE, *(value for value in values if value not in HIDES.known)]
    return f"`{option.name}`: {', '.join(values)} (default `{option.default}`)"


def options_table(kind: str, registered: Mapping[str, Registered]) -> str:
    """Return a table with the options of each method or metric that has some; plug-ins are left out."""
    rows = [
        f"| `{name}` | {'<br>'.join(map(described, member.options.values()))} |"
        for name, member in sorted(registered.items())
        if member.options and member.function.__module__.startswith(("whyformer.", "whyformer_papers."))
    ]
    return "\n".join([f"| {kind} | options |", "|---|---|", *rows])


PARTS: dict[str, Callable[[], str]] = {
    "options of methods": lambda: options_table("method", whyformer.list_methods()),
    "options of metrics": lambda: options_table("metric", whyformer.list_metrics()),
}


def with_parts(text: str) -> str:
    """Return the text of a page with its generated parts made anew."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found['name']]()}\n\n{found[3]}", text)


def main() -> None:
    """Write the pages that have generated parts."""
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        made = with_parts(text)
        if made != text:
            page.write_text(made, encoding="utf-8")
            print(f"wrote {page.relative_to(DOCS.parent)}")
    for page in write_summaries(DOCS):
        print(f"wrote {page.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
