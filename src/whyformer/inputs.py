"""From texts, pairs, questions or tensors to a Batch: what the model is given, and the unit behind each position."""

import inspect
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from whyformer.errors import BadInput, BadOption, TruncationWarning
from whyformer.load import Subject, Task, device_of, input_embeddings, text_config
from whyformer.units import Span, Unit, search_spans, trim

Text = str | tuple[str, str]
NO_ANSWER = "(no answer)"

_POSITIONS: "WeakKeyDictionary[nn.Module, tuple[int, ...]]" = WeakKeyDictionary()


@dataclass(frozen=True)
class Encoded:
    """One text, pair, or question with its context, as the model sees it before it is padded."""

    tensors: dict[str, list[int]]
    units: tuple[Unit, ...]
    texts: tuple[str, ...]
    dropped: int  # tokens that did not fit into the window
    no_answer: int | None = None  # the position that says that there is no answer

    @property
    def context(self) -> list[int]:
        """The positions of the second text: where the answer to a question stands."""
        return [i for i, unit in enumerate(self.units) if unit.part == 1]

    def answer(self, target: Any) -> tuple[int, int]:
        """The first and the last token of an answer, given by its text or by these two positions."""
        if isinstance(target, str):
            return self._answer_called(target)
        context, none = self.context, self.no_answer
        if not isinstance(target, tuple) or len(target) != 2 or not all(isinstance(t, int) for t in target):
            raise BadOption(f"target {target!r}: an answer is given by its text, or as (start, end) in tokens")
        start, end = target
        if start == end == none or (start in context and end in context and start <= end):
            return start, end
        nothing = "" if none is None else f", or ({none}, {none}) for no answer"
        raise BadOption(
            f"target {target!r} is no answer: give the first and the last token of one, within {context[0]} … "
            f"{context[-1]}, where the context stands{nothing}"
        )

    def _answer_called(self, text: str) -> tuple[int, int]:
        """The tokens of a text where it first stands in the context."""
        place = places(text.strip(), self.texts[1])[:1]
        spans = {i: self.units[i].span for i in self.context}
        inside = [i for i, span in spans.items() for a, b in place if span and span[0] < b and a < span[1]]
        if inside:
            return inside[0], inside[-1]
        if text == NO_ANSWER and self.no_answer is not None:
            return self.no_answer, self.no_answer
        if positions := re.fullmatch(r"\(?(\d+), ?(\d+)\)?", text, re.ASCII):
            return self.answer((int(positions[1]), int(positions[2])))
        raise BadOption(
            f"target {text!r} does not stand in the context: copy the answer from there, or give its first and last "
            "token as (start, end)"
        )

    def characters(self, start: int, end: int) -> Span | None:
        """Where the tokens from `start` to `end` stand in their text; None for special tokens."""
        spans = [unit.span for unit in self.units[start : end + 1] if unit.span]
        return (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None


@dataclass(frozen=True)
class Batch:
    """The tensors for the model's forward, and which of its positions are not text.

    `masked`: not attended to; None for images, which have no padding. `special`: special tokens, or None where nobody
    can tell (ready tensors). `examples` and `tokenizer` are those of texts; ready tensors have none.
    """

    tensors: dict[str, Tensor]
    masked: Tensor | None  # [batch, units]
    special: Tensor | None  # [batch, units]
    examples: tuple[Encoded, ...] = ()
    tokenizer: Any = None

    def padding(self, reader: Tensor, pad_token_id: int | None) -> Tensor:
        """Masked positions that are neither special tokens nor read by the head, [batch, units].

        A masked padding token is padding, also where a tokenizer's mask calls it special.
        """
        if self.masked is None:
            return torch.zeros_like(reader, dtype=torch.bool)
        padding = self.masked & (reader == 0)
        if self.special is None:
            return padding
        special = self.special
        if not self.examples and "input_ids" in self.tensors:  # `collate` knows better than a tokenizer's mask
            special = special & (self.tensors["input_ids"] != pad_token_id) if pad_token_id is not None else special
        return padding & ~special


def places(text: str, context: str) -> list[Span]:
    """Where a text stands: as whole words, or else inside them; as it is written, or else with other capitals."""
    plain = re.escape(text)
    for pattern in (rf"(?<!\w){plain}(?!\w)", plain) if text else ():
        for flags in (re.NOFLAG, re.IGNORECASE):
            if found := [match.span() for match in re.finditer(pattern, context, flags)]:
                return found
    return []


def asked(question: Any, context: Any) -> Text | list[Text]:
    """A question with its context as a pair, or a list of them."""
    if question is None or context is None:
        missing = "context" if context is None else "question"
        raise BadInput(f"a question and its context are needed: give {missing}= too (--{missing})")
    if isinstance(question, list) and isinstance(context, list):
        if len(question) != len(context):
            raise BadInput(f"{len(question)} questions and {len(context)} contexts: give one context for each question")
        return list(zip(question, context, strict=True))
    if isinstance(question, list) or isinstance(context, list):
        raise BadInput("one of question and context is a list, the other is not: give one context for each question")
    return question, context


def encode(subject: Subject, text: Text) -> Encoded:
    """Tokenise one text or pair.

    Tokens beyond the model's window are dropped with a warning that counts them; the context of a question has to fit,
    because the answer may stand in what is dropped.
    """
    texts = _checked(text, subject.task)
    tokenizer, window = subject.tokenizer, window_of(subject)
    options: dict[str, Any] = {"return_special_tokens_mask": True, "return_offsets_mapping": tokenizer.is_fast}
    encoding = tokenizer(*texts, verbose=False, **options)
    count = len(encoding["input_ids"])
    dropped = max(0, count - window)
    if dropped and subject.task == "answer":
        raise BadInput(
            f"the question and its context are {count} tokens, but the model's window holds {window}: contexts that do "
            "not fit are not supported yet; give the part that holds the answer"
        )
    if dropped:
        warnings.warn(
            f"{count} tokens, but the model's window holds {window}: {dropped} were dropped",
            TruncationWarning,
            stacklevel=2,
        )
        strategy = "longest_first" if len(texts) > 1 else True
        encoding = tokenizer(*texts, truncation=strategy, max_length=window, **options)
    units = _units(tokenizer, encoding, texts)
    found = {unit.part for unit in units if not unit.special}
    if not found or (subject.task == "answer" and 1 not in found):
        raise BadInput(f"the tokenizer finds no token in {text!r}")
    tensors = {k: list(encoding[k]) for k in ("input_ids", "token_type_ids") if k in encoding}
    if not _accepts(subject.model, "token_type_ids"):
        tensors.pop("token_type_ids", None)
    return Encoded(tensors, units, texts, dropped, _no_answer(tokenizer, units))


def collate(subject: Subject, examples: Sequence[Encoded]) -> Batch:
    """Pad encoded texts on the right, so that the positions of a text do not depend on the others."""
    length = max(len(e.units) for e in examples)
    fill = {"input_ids": _pad_token_id(subject), "token_type_ids": 0}
    tensors = {
        name: torch.tensor([e.tensors[name] + [fill[name]] * (length - len(e.units)) for e in examples])
        for name in examples[0].tensors
    }
    attended = torch.tensor([[1] * len(e.units) + [0] * (length - len(e.units)) for e in examples])
    special = torch.tensor([[u.special for u in e.units] + [False] * (length - len(e.units)) for e in examples])
    tensors["attention_mask"] = attended
    tensors = {name: tensor.to(subject.device) for name, tensor in tensors.items()}
    masked = attended.eq(0).to(subject.device)
    return Batch(tensors, masked, special.to(subject.device), tuple(examples), subject.tokenizer)


def batch_of(model: nn.Module, inputs: Mapping[str, Tensor]) -> Batch:
    """A batch from ready tensors. `special_tokens_mask`, as tokenizers return it, may be among them."""
    device = device_of(model)
    tensors = {name: tensor.to(device) for name, tensor in inputs.items() if isinstance(tensor, Tensor)}
    special = tensors.pop("special_tokens_mask", None)
    shape = next((tensors[n].shape[:2] for n in ("input_ids", "inputs_embeds") if n in tensors), None)
    if shape is None and "pixel_values" in tensors:
        if tensors["pixel_values"].dim() != 4 or not tensors["pixel_values"].is_floating_point():
            found = f"{tensors['pixel_values'].dtype} of shape {tuple(tensors['pixel_values'].shape)}"
            raise BadInput(f"pixel_values are fractions [batch, channels, height, width]; found {found}")
        return Batch(tensors, None, None)
    if shape is None:
        found = ", ".join(inputs) or "nothing"
        raise BadInput(f"inputs need `input_ids`, `inputs_embeds` or `pixel_values`; found {found}")
    if len(shape) < 2 or 0 in shape:
        raise BadInput(f"inputs [batch, units] with at least one token are needed; found the shape {tuple(shape)}")
    _check_ids(model, tensors.get("input_ids"))
    attended = tensors.get("attention_mask")
    usual = attended is not None and attended.shape == shape
    masked = attended.eq(0) if usual and attended is not None else torch.zeros(shape, dtype=torch.bool, device=device)
    return Batch(tensors, masked, None if special is None else special.bool())


def _accepts(model: nn.Module, name: str) -> bool:
    parameters = inspect.signature(model.forward).parameters
    return name in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())


def _check_ids(model: nn.Module, ids: Tensor | None) -> None:
    if ids is None:
        return
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise BadInput(f"input_ids must be whole numbers; found {ids.dtype}")
    vocabulary = getattr(input_embeddings(model), "num_embeddings", None)
    if vocabulary is not None and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        raise BadInput(f"input_ids must lie in 0 … {vocabulary - 1}; found {int(ids.min())} … {int(ids.max())}")


def window_of(subject: Subject) -> int:
    """How many tokens the model can take: the smallest of what tokenizer, configuration and position table say."""
    config = getattr(subject.model, "config", None)
    stated = [getattr(subject.tokenizer, "model_max_length", None), getattr(config, "max_position_embeddings", None)]
    return min((int(n) for n in (*stated, *_position_tables(subject.model)) if n), default=10**30)


def _position_tables(model: nn.Module) -> tuple[int, ...]:
    """How many positions each table of position embeddings has; looked for once in a model."""
    if model not in _POSITIONS:
        found = []
        for path, module in model.named_modules():
            if isinstance(module, nn.Embedding) and path.endswith(("position_embeddings", "wpe")):
                reserved = 0 if module.padding_idx is None else module.padding_idx + 1  # RoBERTa counts from there
                found.append(module.num_embeddings - reserved)
        _POSITIONS[model] = tuple(found)
    return _POSITIONS[model]


def _checked(text: Any, task: Task) -> tuple[str, ...]:
    texts = (text,) if isinstance(text, str) else text
    if not isinstance(texts, tuple) or len(texts) not in (1, 2) or not all(isinstance(t, str) for t in texts):
        needed = "one question and its context are" if task == "answer" else "a text or a pair (text, text) is"
        raise BadInput(f"{needed} needed, found {text!r}")
    if not all(t.strip() for t in texts):
        if task == "answer":
            raise BadInput("the context is empty" if texts[0].strip() else "the question is empty")
        raise BadInput("the text is empty" if len(texts) == 1 else f"a text of the pair is empty: {text!r}")
    if any("\ud800" <= character <= "\udfff" for t in texts for character in t):
        raise BadInput(f"the text holds half a character (a lone surrogate): {text!r}")
    return texts


def _no_answer(tokenizer: Any, units: Sequence[Unit]) -> int | None:
    """Where models say that a question has no answer: at the classification token, or else the first special one."""
    special = [i for i, unit in enumerate(units) if unit.special]
    own = [i for i in special if units[i].piece == getattr(tokenizer, "cls_token", None)]
    return next(iter(own + special), None)


def _units(tokenizer: Any, encoding: Any, texts: tuple[str, ...]) -> tuple[Unit, ...]:
    ids = list(encoding["input_ids"])
    pieces = tokenizer.convert_ids_to_tokens(ids)
    special = [bool(s) for s in encoding["special_tokens_mask"]]
    parts = encoding.sequence_ids() if tokenizer.is_fast else _parts(tokenizer, special, texts)
    if tokenizer.is_fast:
        spans = [None if s else trim(tuple(o), texts[p or 0]) for o, s, p in _rows(encoding, special, parts)]
    else:
        spans = _searched(tokenizer, ids, special, parts, texts)
    units = []
    for piece, flag, part, span in zip(pieces, special, parts, spans, strict=True):
        if flag or part is None:
            units.append(Unit(str(piece), special=True, piece=str(piece)))
        else:
            surface = texts[part][slice(*span)] if span else str(piece)
            units.append(Unit(surface, "token", span, part, False, str(piece)))
    return tuple(units)


def _rows(encoding: Any, special: list[bool], parts: list[int | None]) -> Any:
    return zip(encoding["offset_mapping"], special, parts, strict=True)


def _parts(tokenizer: Any, special: list[bool], texts: tuple[str, ...]) -> list[int | None]:
    """Which text each position belongs to: counted, or, where a text was cut, by the special tokens between them."""
    counts = [len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) for text in texts]
    parts: list[int | None] = []
    if sum(counts) == special.count(False):
        numbers = iter([number for number, count in enumerate(counts) for _ in range(count)])
        return [None if flag else next(numbers) for flag in special]
    part, started = 0, False
    for flag in special:
        if flag and started:
            part, started = min(part + 1, 1), False
        started = started or not flag
        parts.append(None if flag else part)
    return parts


def _searched(
    tokenizer: Any, ids: list[int], special: list[bool], parts: list[int | None], texts: tuple[str, ...]
) -> list[tuple[int, int] | None]:
    spans: list[tuple[int, int] | None] = [None] * len(ids)
    for part, text in enumerate(texts):
        positions = [i for i, p in enumerate(parts) if p == part and not special[i]]
        found = search_spans([tokenizer.decode([ids[i]]).removeprefix("##") for i in positions], text)
        unknown = [ids[i] == tokenizer.unk_token_id for i in positions]
        found = [_gap(found, n, text) if flag else found[n] for n, flag in enumerate(unknown)]
        for position, span in zip(positions, found, strict=True):
            spans[position] = span
    return spans


def _gap(spans: list[tuple[int, int] | None], number: int, text: str) -> tuple[int, int]:
    """What lies between the nearest pieces that were found: there an unknown token must stand."""
    start = max((s[1] for s in spans[:number] if s), default=0)
    end = min((s[0] for s in spans[number:] if s), default=len(text))
    return trim((start, end), text)


def _pad_token_id(subject: Subject) -> int:
    """Which token to pad with; a model without one gets a stand-in from the recorder."""
    for owner in (text_config(subject.model), subject.tokenizer):
        found = getattr(owner, "pad_token_id", None)
        if found is not None:
            return int(found)
    return 0
