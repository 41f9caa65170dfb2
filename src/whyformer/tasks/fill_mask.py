"""The word that a masked language model fills in."""

from dataclasses import dataclass

from whyformer.errors import BadInput, BadOption, UnsupportedModel, shown
from whyformer.tasks.targets import OutputPosition
from whyformer.tasks.task import Asked, ExampleOutputs, register
from whyformer.tasks.token_classification import counted
from whyformer.tasks.vocabulary import Vocabulary


@register
@dataclass(frozen=True)
class MaskedWord(Vocabulary):
    """The token that stands behind a mask of the text; `position` says behind which one, where there are several.

    A target is a token, by its text or id. In ready tensors it is `(id, position)`.
    """

    name, head, gives = "masked_word", "MaskedLM", "the logits of masked words"
    does, takes = "fills in masked words", frozenset({"position"})

    def places(self, of: ExampleOutputs, asked: Asked) -> list[int]:
        """The mask that is meant."""
        mask = getattr(of.tokenizer, "mask_token_id", None)
        if mask is None:
            raise UnsupportedModel("this model fills in masked words, and its tokenizer has no mask token")
        masks = [place for place, index in enumerate(of.example.tensors["input_ids"]) if index == mask]
        token = of.tokenizer.mask_token
        if not masks:
            raise BadInput(
                f"this model fills in masked words, and {shown(of.example.texts[0], 60)} has no {token}: write {token} "
                "where a word is to be filled in"
            )
        if asked.position is None and len(masks) > 1:
            raise BadOption(
                f"the text has {len(masks)} masks: say which with position= (--position), 0 … {len(masks) - 1}"
            )
        if asked.position is None:
            return masks
        return [masks[counted(asked.position, len(masks), "the masks of this text")]]

    def follows_a_word(self, position: int, of: ExampleOutputs) -> bool:
        """Whether the mask is not the first token: the space in front of a mask may be part of it."""
        span = of.example.units[position].span
        return position > 1 if span is None else span[0] > 0

    def place_of(self, position: int, of: ExampleOutputs) -> OutputPosition:
        """Where the mask stands."""
        unit = of.example.units[position]
        return OutputPosition(position, unit.part, unit.span)

    def name_of(self, index: int, of: ExampleOutputs) -> str:
        """The text of a token; the space in front of it does not matter."""
        text = super().name_of(index, of)
        return text.strip() or text

    def title_of(self, name: str, position: int, of: ExampleOutputs, *, alone: bool) -> str:
        """What the mask becomes."""
        return name if alone else f"{of.example.units[position].text} → {name}"
