"""Fillers: the tokens of a model's vocabulary that can stand where a unit was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from whyformer.errors import BadOption
from whyformer.models.loading import text_config, vocabulary_size

WORDS = {"pad": "padding", "mask": "mask", "unk": "unknown"}


@dataclass(frozen=True)
class Fillers:
    """The tokens that stand where a unit was: `mask`, `pad`, `unk`, and `alone` where nothing is left; None: no such.

    `alone` is the tokenizer's BOS, else EOS, else padding token. A token that the model cannot look up, because it lies
    beyond the vocabulary, is none; a padding token of this kind is `beyond`. `stated` are the tokens as they are named,
    and `owner` is who names them.
    """

    mask: int | None = None
    pad: int | None = None
    alone: int | None = None
    beyond: int | None = None
    unk: int | None = None
    stated: Mapping[str, int] = field(default_factory=dict, compare=False)
    owner: str | None = field(default=None, compare=False)  # None: the tokenizer
    vocabulary: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any = None) -> "Fillers":
        """The fillers of a model and its tokenizer; of the model's configuration alone where there is no tokenizer."""
        config, size = text_config(model), vocabulary_size(model)
        owners = (config,) if tokenizer is None else (tokenizer,)
        named = {
            "pad": _tokens(("pad_token_id",), config, tokenizer),
            "mask": _tokens(("mask_token_id",), *owners),
            "unk": _tokens(("unk_token_id",), *owners),
            "alone": _tokens(("bos_token_id", "eos_token_id"), *owners),
        }
        known = {name: _known(tokens, size) for name, tokens in named.items()}
        if known["alone"] is None:
            known["alone"] = known["pad"]
        padding = getattr(config, "pad_token_id", None)
        beyond = padding if isinstance(padding, int) and not _is_known(padding, size) else None
        stated = {name: tokens[0] for name, tokens in named.items() if tokens}
        owner = None if tokenizer is not None else f"the configuration of {type(model).__name__}"
        return cls(**known, beyond=beyond, stated=stated, owner=owner, vocabulary=size)

    def first(self, names: Sequence[str]) -> int | None:
        """The first of several tokens that there is: of `pad`, `mask`, `unk`."""
        for name in names:
            token: int | None = getattr(self, name)
            if token is not None:
                return token
        return None

    def baseline(self, name: str, asked: str) -> int:
        """The token whose embedding takes the place of a unit, for what was `asked` for; it has no substitute."""
        token: int | None = getattr(self, name)
        if token is not None:
            return token
        what, use = f"{asked} is not possible", "use baseline='zero'"
        if name in self.stated:
            raise BadOption(
                f"{what}: the {WORDS[name]} token {self.stated[name]} lies beyond the model's vocabulary of "
                f"{self.vocabulary}; {use}"
            )
        if self.owner is not None:
            raise BadOption(
                f"{what}: {self.owner} names no {WORDS[name]} token; {use}, or explain texts with an Explainer, which "
                "knows the tokenizer's"
            )
        raise BadOption(f"{what}: the tokenizer has no {WORDS[name]} token; {use}")


def _tokens(names: Sequence[str], *owners: Any) -> list[int]:
    tokens = (getattr(owner, name, None) for name in names for owner in owners)
    return [int(token) for token in tokens if isinstance(token, int)]


def _known(tokens: Sequence[int], size: int | None) -> int | None:
    return next((token for token in tokens if _is_known(token, size)), None)


def _is_known(token: int, size: int | None) -> bool:
    """Whether a token lies within a vocabulary of this size."""
    return token >= 0 and (size is None or token < size)
