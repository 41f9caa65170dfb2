"""Vocabularies: outputs that are tokens, by the text that a person writes and reads for them."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from whyformer.errors import BadOption, listed, shown
from whyformer.tasks.targets import NUMBER
from whyformer.tasks.task import ExampleOutputs
from whyformer.tasks.token_classification import KEPT, NamedTokens


@dataclass(frozen=True)
class Vocabulary(NamedTokens):
    """A token of the vocabulary at a position; what language models, causal and masked, share."""

    @abstractmethod
    def follows_a_word(self, position: int, of: ExampleOutputs) -> bool:
        """Whether the token stands behind a word, so that a word has a space in front of it there."""

    def index_in(self, name: Any, of: ExampleOutputs, position: int) -> int:
        """A token by its id or by its text: one token, with the space that a word has in front of it there."""
        count = of.outputs.logits.shape[-1]
        if not isinstance(name, str):
            return self.index_of(name, count, name)
        index = _token_called(name, of.tokenizer, self.follows_a_word(position, of))
        if index >= count:
            raise BadOption(f"target {shown(name)} is the token {index}, and this model has outputs 0 … {count - 1}")
        return index

    def name_of(self, index: int, of: ExampleOutputs) -> str:
        """The text of a token."""
        return token_text(index, of.tokenizer)

    def kept(self, logits: Tensor, explained: Iterable[int]) -> list[int]:
        """The likeliest tokens and the explained ones."""
        likeliest = logits.topk(min(KEPT, len(logits))).indices.tolist()
        return [*likeliest, *(index for index in dict.fromkeys(explained) if index not in likeliest)]


def token_text(index: int, tokenizer: Any) -> str:
    """What a person reads for a token: its text with the space in front of it, or the tokenizer's spelling."""
    piece = tokenizer.convert_ids_to_tokens([index])[0]
    text = tokenizer.decode([index], clean_up_tokenization_spaces=False)
    if str(piece).startswith("▁") and not text.startswith(" "):
        text = f" {text}"
    return str(piece) if not text or "\ufffd" in text else text


def quoted(text: str) -> str:
    """The text of a token in quotes, on one line."""
    return f'"{text}"'.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def _token_called(text: str, tokenizer: Any, follows_a_word: bool) -> int:
    """The one token of a text."""
    if not text:
        raise BadOption("the target is an empty text: give the text of a token, or its id")
    apart = text[0].isalnum() and follows_a_word
    spellings = (f" {text}", text) if apart else (text, f" {text}")
    tokens = [list(tokenizer(spelling, add_special_tokens=False)["input_ids"]) for spelling in spellings]
    unknown = getattr(tokenizer, "unk_token_id", None)
    single = next((ids[0] for ids in tokens if len(ids) == 1 and ids[0] != unknown), None)
    if single is not None:
        return int(single)
    vocabulary = tokenizer.get_vocab()
    if text in vocabulary:  # the tokenizer's own spelling, as ##ing
        return int(vocabulary[text])
    if NUMBER.fullmatch(text) and text.strip().isdecimal() and len(text) < 19:
        return int(text)
    if any(unknown in ids for ids in tokens) or not tokens[0]:
        raise BadOption(f"target {shown(text)} is not in the vocabulary: give the text of another token, or its id")
    pieces = [quoted(token_text(index, tokenizer)) for index in tokens[0]]
    raise BadOption(
        f"target {shown(text)} is {len(pieces)} tokens of this model, {listed(pieces)}, and one is explained at a "
        "time: give one token"
    )
