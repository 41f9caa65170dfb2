"""Heads: what a model is for, as transformers' Auto classes tell it."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from torch import nn

from whyformer.registry.names import Registry

HEADS: Registry[str] = Registry("head", "tasks")  # the task of AutoModelFor<head>; tasks from outside are added
HEADS.known |= {
    "SequenceClassification": "classes",
    "QuestionAnswering": "answer",
    "TokenClassification": "token_labels",
    "MultipleChoice": "choice",
    "MaskedLM": "masked_word",  # before the next: XLM has both heads in one class
    "CausalLM": "next_token",
    "ImageClassification": "classes",
    "ZeroShotImageClassification": "similarity",
}


def head_of(classes: Iterable[str]) -> str | None:
    """The head that a model has, by the first of these class names that tells: by its ending, or its Auto class."""
    names = []
    for name in classes:  # of most models the first one tells
        ending = next((head for head in HEADS if f"For{head}" in name), None)
        if ending is not None:
            return ending
        names.append(name)
    return next((head for name in names for head in HEADS if name in _built_by(head)), None)


def task_name(model: nn.Module) -> str | None:
    """The name of what a model says, by its class; a wrapped model says what is in it."""
    head = head_of(type(module).__name__ for module in model.modules())
    return None if head is None else HEADS[head]


def auto_class(head: str) -> Any:
    """The Auto class that loads models of a head; None if transformers has none."""
    import transformers

    return getattr(transformers, f"AutoModelFor{head}", None)


@cache
def _built_by(head: str) -> frozenset[str]:
    """The names of the classes that an Auto class builds."""
    names = getattr(getattr(auto_class(head), "_model_mapping", None), "_model_mapping", {}).values()
    return frozenset(name for some in names for name in ([some] if isinstance(some, str) else some))
