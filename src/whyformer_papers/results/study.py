"""Study: one model on one data set, explained by some methods and rated by some metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

HEADS, RATE, LM_HEAD = "{heads}", "{rate}", "{lm_head}"  # placeholders in the options of methods


@dataclass(frozen=True, kw_only=True)
class Study:
    """One evaluation, and all that determines its numbers.

    | field | meaning |
    |---|---|
    | `name`, `title` | the name of its folder and of its CSV file, and what it is |
    | `model` | a folder below the folder of models |
    | `bundled` | the bundled model that is used if there is no such folder |
    | `data`, `split` | a folder below the folder of data, and the split in it |
    | `limit`, `sampled` | how many rows are measured: the first ones, or rows drawn at random with a fixed seed |
    | `methods`, `metrics` | as `evaluate` takes them, with the placeholders below |
    | `ceiling` | how many rows get the rows `ceiling` and `chance` |
    | `options` | other options of `evaluate` |
    | `lm_head` | the folder of the model whose LM head stands for `{lm_head}` in methods |
    | `treebank` | a CoNLL-U file below the folder of data. The head mask counted in it stands for `{heads}`, and the |
    | | share of heads that it keeps for `{rate}` |
    | `kind` | `evaluate`, or `two_images`: the share of the positive score on the half that shows the target |
    """

    name: str
    title: str
    model: str
    data: str
    methods: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    split: str | None = "test"
    limit: int = 300
    sampled: bool = False
    ceiling: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    bundled: str | None = None
    lm_head: str | None = None
    treebank: str | None = None
    kind: Literal["evaluate", "two_images"] = "evaluate"

    @property
    def rows(self) -> dict[str, int]:
        """The option of `open_dataset` that selects the rows."""
        return {"sample" if self.sampled else "limit": self.limit}

    def filled(self, values: Mapping[str, str]) -> list[str]:
        """The methods, with values in place of the placeholders."""
        return [_replaced(method, values) for method in self.methods]

    def unfilled(self, label: str, values: Mapping[str, str]) -> str:
        """The label of a method without files of this machine: `head_mask=treebank`, `lm_head=base-mlm`."""
        names = {HEADS: "treebank", RATE: "treebank", LM_HEAD: self.lm_head or ""}
        for placeholder, value in values.items():
            label = label.replace(f"={value}", f"={names[placeholder]}")
        return label


def _replaced(method: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        method = method.replace(placeholder, value)
    return method
