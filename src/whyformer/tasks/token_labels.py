"""Labels of tokens: named entities, parts of speech."""

from dataclasses import dataclass
from typing import Any

from whyformer.errors import BadInput, BadOption, shown
from whyformer.inputs.encoding import places
from whyformer.inputs.units import Unit, join_words
from whyformer.tasks.label import Place
from whyformer.tasks.labels import class_index
from whyformer.tasks.task import Asked, ExampleOutputs, register
from whyformer.tasks.tokens import NamedTokens, position_of

ALL = "all"  # every word that has a label
NO_LABEL = "O"  # of a word that is part of no entity


@register
@dataclass(frozen=True)
class TokenLabels(NamedTokens):
    """The label of a word, read at its first token, as it is in training.

    `word` says which: as it is written, for its first occurrence; `("Paris", 2)` for the second; the index of a word;
    or `"all"`, every word whose label is not `O`. A target is a label, by name or index. In ready tensors it is
    `(label, position)`.
    """

    name, head, gives = "token_labels", "TokenClassification", "the labels of tokens"
    does, takes = "labels tokens", frozenset({"word", "position"})

    def index_of(self, name: Any, count: int, target: Any) -> int:
        """A label by its name or index."""
        return class_index(name, self.labels, count) if isinstance(name, str) else super().index_of(name, count, target)

    def index_in(self, name: Any, of: ExampleOutputs, position: int) -> int:
        """A label by its name or index."""
        return class_index(name, self.labels, of.outputs.logits.shape[-1])

    def name_of(self, index: int, of: ExampleOutputs) -> str:
        """The name of a label."""
        return self.labels[index] if index < len(self.labels) else str(index)

    def places(self, of: ExampleOutputs, asked: Asked) -> list[int]:
        """The first token of the word that is meant, or of every word that has a label."""
        if asked.word is not None and asked.position is not None:
            raise BadOption("give word= or position=, not both: a position is a token, special ones counted")
        if asked.position is not None:
            return [position_of(of, asked.position)]
        words = join_words(of.example.units, of.example.texts)
        if asked.word is None and len(words) != 1:
            raise BadOption(
                "this model labels tokens: say which word with word= (--word), as it is written, as (word, 2) for its "
                f"second occurrence, by its index, or {ALL!r} for every word with a label"
            )
        if asked.word == ALL:
            first_tokens = [members[0] for _, members in words]
            return [p for p in first_tokens if self.name_of(int(of.at(p).argmax()), of) != NO_LABEL]
        return [words[0][1][0] if asked.word is None else _first_token(asked.word, words, of)]

    def place_of(self, position: int, of: ExampleOutputs) -> Place:
        """Where the word stands that the token begins or belongs to."""
        word = _word_at(position, of)
        return Place(position, word.part, word.span)

    def title_of(self, name: str, position: int, of: ExampleOutputs, *, alone: bool) -> str:
        """The word and its label."""
        return name if alone else f"{_word_at(position, of).text} → {name}"


def _word_at(position: int, of: ExampleOutputs) -> Unit:
    """The word of a token; a special token stands for itself."""
    words = join_words(of.example.units, of.example.texts)
    return next((word for word, members in words if position in members), of.example.units[position])


def _first_token(word: Any, words: list[tuple[Unit, list[int]]], of: ExampleOutputs) -> int:
    """Where the label of a word is read, which is given as it is written, with its occurrence, or by its index."""
    if isinstance(word, int) and not isinstance(word, bool):
        if not 0 <= word < len(words):
            raise BadOption(f"word={word}: the words of this text are 0 … {len(words) - 1}")
        return words[word][1][0]
    text, occurrence = word if isinstance(word, tuple) and len(word) == 2 else (word, 1)
    if not isinstance(text, str) or isinstance(occurrence, bool) or not isinstance(occurrence, int):
        raise BadOption(f"word={shown(word)}: give a word as it is written, (word, occurrence), its index, or {ALL!r}")
    sources = enumerate(of.example.texts)
    occurrences = [(part, a, b) for part, source in sources for a, b in places(text.strip(), source)]
    if not 1 <= occurrence <= len(occurrences):
        times = "once" if len(occurrences) == 1 else f"{len(occurrences)} times"
        raise BadInput(
            f"word={shown(word)} does not stand in the text" + (f" so often: it does {times}" if occurrences else "")
        )
    part, start, end = occurrences[occurrence - 1]
    spans = [(i, unit.span) for i, unit in enumerate(of.example.units) if unit.part == part and unit.span]
    token = next((i for i, (a, b) in spans if a < end and start < b), None)
    if token is None:
        raise BadInput(f"word={shown(word)} stands in a part of the text that the model does not see")
    return token
