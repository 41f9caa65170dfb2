"""Labels of tokens, such as named entities or parts of speech: one output at each position."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import BadInput, BadOption, shown
from whyformer.inputs.batch import places
from whyformer.inputs.units import Unit, join_words
from whyformer.tasks.question_answering import position_in
from whyformer.tasks.targets import Label, OutputPosition, Predicted, class_index
from whyformer.tasks.task import (
    Asked,
    Chosen,
    ExampleOutputs,
    ModelOutputs,
    Task,
    are_all_others,
    log_odds,
    log_odds_start,
    register,
)

KEPT = 10  # outputs of a vocabulary that people are told about


@register
@dataclass(frozen=True)
class Tokens(Task):
    """An output at a position. Logits are [batch, units, outputs], a target is `(output, position)`.

    Models of tasks that are not known by name have this one; it has no words for people.
    """

    name, gives = "token", "logits at every position"
    does = "gives outputs at every position"
    form = "token"

    def logits(self, output: Any) -> Tensor | None:
        """Logits [batch, units, outputs]."""
        logits = getattr(output, "logits", None)
        return logits if isinstance(logits, Tensor) and logits.dim() == 3 else None

    def spoken_at(self, outputs: ModelOutputs, row: int) -> int:
        """The position that is meant if none is given, in ready tensors."""
        raise BadOption("this model gives outputs at every position: give a target (index, position)")

    def best(self, outputs: ModelOutputs) -> Tensor:
        """The output with the highest logit at the position that is meant."""
        rows = range(len(outputs.logits))
        positions = torch.tensor([self.spoken_at(outputs, row) for row in rows], device=outputs.logits.device)
        logits = outputs.logits.detach()[list(rows), outputs.rows_at(positions)]
        return torch.stack((logits.argmax(-1), positions), 1)

    def parsed(self, target: Any, outputs: ModelOutputs, row: int) -> tuple[int, int]:
        """An output and its position."""
        name, position = target if isinstance(target, tuple) and len(target) == 2 else (target, None)
        index = self.index_of(name, outputs.logits.shape[-1], target)
        place = self.spoken_at(outputs, row) if position is None else position_in(outputs, position, target, row)
        return index, place

    def index_of(self, name: Any, count: int, target: Any) -> int:
        """The output that a name means: by default its index."""
        if not isinstance(name, int) or not 0 <= name < count:
            raise BadOption(f"target {shown(target)} is no output of this model: give an id of 0 … {count - 1}")
        return name

    def odds(self, outputs: ModelOutputs, chosen: Tensor) -> Tensor | None:
        """Of an output among all at its position."""
        at = torch.arange(len(chosen), device=chosen.device), outputs.rows_at(chosen[:, 1])
        return log_odds(outputs.logits[at].detach().double(), chosen[:, 0])

    def runners_up(self, outputs: ModelOutputs, chosen: Tensor) -> Tensor:
        """The output with the highest logit beside the chosen one, at the same position."""
        at = torch.arange(len(chosen), device=chosen.device), outputs.rows_at(chosen[:, 1])
        others = outputs.logits.detach()[at].scatter(1, chosen[:, :1], -torch.inf).argmax(-1)
        return torch.stack((others, chosen[:, 1]), 1)

    def parts(self, logits: Tensor, chosen: Tensor) -> list[Tensor]:
        """The logit of the output at its position."""
        return [chosen[:, 1] * logits.shape[-1] + chosen[:, 0]]

    def log_odds_misfit(self, classes: int) -> str | None:
        """The outputs at a position exclude each other. A single output has no log-odds."""
        return "this one has one output: leave it out" if classes < 2 else None

    def log_odds(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """The log-odds of the output among all at its position."""
        chosen = chosen.expand(len(logits), -1)
        return log_odds(self.read_by(logits, chosen), chosen[:, 0])

    def log_odds_start(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """The derivative at the logits of its position, and 0 at all others."""
        start = torch.zeros_like(logits)
        rows = torch.arange(len(chosen), device=chosen.device)
        start[rows, chosen[:, 1]] = log_odds_start(self.read_by(logits, chosen), chosen[:, 0])
        return start

    def positions(self, chosen: Tensor) -> Tensor:
        """The one position."""
        return chosen[:, 1:]

    def moved(self, chosen: Tensor, places: Sequence[Mapping[int, int]]) -> Tensor:
        """The same output where the position stands now."""
        if are_all_others(chosen):
            return chosen
        rows = [[index, new[p]] for (index, p), new in zip(chosen.tolist(), places, strict=True)]
        return torch.tensor(rows, device=chosen.device)

    def read_by(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """The logits of the position."""
        return logits[torch.arange(len(chosen), device=chosen.device), chosen[:, 1]]

    def probabilities(self, logits: Tensor) -> Tensor | None:
        """Softmax over the outputs of a position."""
        return logits.double().softmax(-1)

    def any_in(self, of: ExampleOutputs) -> tuple[int, int]:
        """The first output at the first position."""
        return 0, 0

    def label(self, of: ExampleOutputs, chosen: Chosen, beside: Chosen | None = None) -> Label:
        """Outputs without a name are explained from tensors alone."""
        raise BadOption(f"{self.gives} have no names: explain them from tensors, with whyformer.attribute")

    def predicted(self, of: ExampleOutputs, chosen: Chosen, versus: Chosen | None) -> Predicted:
        """Outputs without a name are explained from tensors alone."""
        raise BadOption(f"{self.gives} have no names: explain them from tensors, with whyformer.attribute")


@dataclass(frozen=True)
class NamedTokens(Tokens):
    """Outputs at positions that people can be told about: what tasks with an output for each token share."""

    @abstractmethod
    def places(self, of: ExampleOutputs, asked: Asked) -> list[int]:
        """The positions of a text that are meant."""

    @abstractmethod
    def index_in(self, name: Any, of: ExampleOutputs, position: int) -> int:
        """The output that a name, text or number means at a position of a text."""

    @abstractmethod
    def name_of(self, index: int, of: ExampleOutputs) -> str:
        """What an output is called."""

    @abstractmethod
    def place_of(self, position: int, of: ExampleOutputs) -> OutputPosition:
        """Where in the text a position stands."""

    @abstractmethod
    def title_of(self, name: str, position: int, of: ExampleOutputs, *, alone: bool) -> str:
        """An output as people read it, with where it stands, or `alone`."""

    def questions(self, of: ExampleOutputs, asked: Asked) -> list[tuple[Chosen, Chosen | None]]:
        """The target at each of the positions that are meant, or what is predicted there."""
        self.refuse_places(asked)
        name, positions = asked.target, None
        if isinstance(name, tuple):
            if len(name) != 2 or asked.word is not None or asked.position is not None:
                raise BadOption(f"target {shown(name)}: give (output, position), or say where with {self._where}")
            positions = [position_in(of.outputs, name[1], name, of.row)]
            name = name[0]
        questions: list[tuple[Chosen, Chosen | None]] = []
        for position in self.places(of, asked) if positions is None else positions:
            index = int(of.at(position).argmax()) if name is None else self.index_in(name, of, position)
            questions.append(((index, position), self.against(of, (index, position), asked.versus)))
        return questions

    @property
    def _where(self) -> str:
        return " or ".join(f"{name}=" for name in sorted(self.takes))

    def written(self, target: Any, of: ExampleOutputs) -> tuple[int, int]:
        """An output, and a position beside it where a person gives both."""
        if isinstance(target, tuple) and len(target) == 2:
            position = position_in(of.outputs, target[1], target, of.row)
            return self.index_in(target[0], of, position), position
        raise BadOption(f"target {shown(target)}: give (output, position), or say where with {self._where}")

    def against(self, of: ExampleOutputs, chosen: Chosen, versus: Any) -> Chosen | None:
        """Another output, at the same position unless another is given."""
        assert isinstance(chosen, tuple)
        plain = versus is not None and versus != "runner_up" and not isinstance(versus, tuple)
        return super().against(of, chosen, (versus, chosen[1]) if plain else versus)

    def label(self, of: ExampleOutputs, chosen: Chosen, beside: Chosen | None = None) -> Label:
        """The name of the output, and where it is said."""
        assert isinstance(chosen, tuple)
        index, position = chosen
        name = self.name_of(index, of)
        alone = isinstance(beside, tuple) and beside[1] == position
        title = self.title_of(name, position, of, alone=alone)
        return Label(index, name, place=self.place_of(position, of), title=title)

    def predicted(self, of: ExampleOutputs, chosen: Chosen, versus: Chosen | None) -> Predicted:
        """What is predicted at the position that is explained."""
        assert isinstance(chosen, tuple)
        position = chosen[1]
        logits = of.at(position)
        beside = [other[0] for other in (chosen, versus) if isinstance(other, tuple) and other[1] == position]
        kept = self.kept(logits, beside)
        shares = logits.softmax(-1)
        label = self.label(of, (int(logits.argmax()), position))
        assert label.index is not None
        return Predicted(
            label.name,
            label.index,
            float(shares[label.index]),
            tuple(logits[kept].tolist()),
            tuple(shares[kept].tolist()),
            tuple(self.name_of(index, of) for index in kept),
            place=label.place,
            title=label.title,
            indices=None if len(kept) == len(logits) else tuple(kept),
        )

    def kept(self, logits: Tensor, explained: Iterable[int]) -> list[int]:
        """Which outputs of a position people are told about: by default all."""
        return list(range(len(logits)))


def position_of(of: ExampleOutputs, position: Any) -> int:
    """A token of a text that a person means, counted as the model sees them."""
    return counted(position, len(of.example.units), "the tokens of this text, special ones too,")


def counted(position: Any, count: int, these: str) -> int:
    """A position among so many."""
    if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < count:
        raise BadOption(f"position={shown(position)}: {these} are 0 … {count - 1}")
    return position


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

    def place_of(self, position: int, of: ExampleOutputs) -> OutputPosition:
        """Where the word stands that the token begins or belongs to."""
        word = _word_at(position, of)
        return OutputPosition(position, word.part, word.span)

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
