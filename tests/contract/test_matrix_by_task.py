"""Some architectures of each head beside sequence classification: explained as the document says."""

import re

import pytest
import transformers

from tests.helpers import zoo
from tools import matrix

PAGE = matrix.PAGE_BY_TASK.read_text(encoding="utf-8")
BY_ALL_METHODS = "supported or tokens"  # the document lists these without a verdict
SOME = [
    *((zoo.TOKEN, name) for name in ("bert", "deberta-v2", "gpt2", "funnel")),
    *((zoo.CAUSAL, name) for name in ("bert", "gpt2", "llama", "gemma3", "cpmant", "mamba")),
    *((zoo.MASKED, name) for name in ("bert", "roberta", "bart", "neomme")),
    *((zoo.CHOICE, name) for name in ("bert", "xlnet", "deberta-v2", "funnel")),
    *((zoo.ANSWER, name) for name in ("bert", "gpt2", "t5", "lxmert")),
    *((zoo.IMAGE, name) for name in ("vit", "siglip", "dinov2_with_registers", "swin", "resnet", "siglip2")),
]


def section(head: zoo.Head) -> str:
    return PAGE.split(f"## {head.name.capitalize()}\n")[1].split("\n## ")[0]


def documented(head: zoo.Head, name: str) -> str:
    """The verdict of an architecture in the document."""
    text = section(head)
    line = re.search(rf"^\| `{re.escape(name)}`[^|]*\| ([^|]*) \|", text, re.MULTILINE)
    if line:
        return line[1]
    return BY_ALL_METHODS if f"`{name}`" in text.partition("\n|")[0] else "not there"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("head", "name"), SOME, ids=lambda part: part if isinstance(part, str) else part.mapping)
def test_an_architecture_is_explained_or_refused_as_documented(head: zoo.Head, name: str) -> None:
    row, verdict = matrix.look(name, head), documented(head, name)
    assert row.verdict in verdict.split(" or ")
    assert verdict != BY_ALL_METHODS or not row.refused
    if row.verdict in matrix.OPENED:
        assert row.logits <= row.rounding
        assert row.invariance is None or row.invariance <= row.rounding


@pytest.mark.parametrize("head", zoo.HEADS[1:], ids=lambda head: head.mapping)
def test_every_architecture_is_in_the_document_once(head: zoo.Head) -> None:
    made_with = PAGE.partition("transformers ")[2].split()[0]
    if transformers.__version__ != made_with:
        pytest.skip(f"the document was made with transformers {made_with}, which has other architectures")
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| [{head.name}]"))
    every, opened, whole, refused, not_built = (int(number) for number in re.findall(r"\| (\d+)", line))
    assert every == len(zoo.names(head)) == opened + refused + not_built
    verdicts = [documented(head, name) for name in zoo.names(head)]
    assert verdicts.count(BY_ALL_METHODS) == whole
    assert verdicts.count("refused") == refused
    assert verdicts.count("not built") == not_built
    assert not {"failed", "not there"} & set(verdicts)
