"""Which columns hold what: found by convention or named by the user."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from whyformer.errors import BadInput, BadOption, listed, nearest, shown

ColumnNames = Mapping[str, str | Sequence[str]]

QUESTION = ("question", "context")
PAIRS = (
    QUESTION,
    *(("premise", "hypothesis"), ("question1", "question2"), ("sentence1", "sentence2"), ("question", "sentence")),
    *(("text1", "text2"), ("text_a", "text_b"), ("query", "document"), ("query", "passage")),
)
TEXTS = ("text", "sentence", "review", "content", "body", "comment", "document", "tweet", "post")
TOKENS = ("tokens", "post_tokens")
LABELS = ("label", "labels", "target", "gold", "gold_label", "class", "classification", "sentiment")
VOTES = ("annotators_label", "annotators")  # one label for each person; the majority counts
ANSWERS = ("answers",)
RATIONALES = ("rationale", "rationales")
EVIDENCES = ("evidences",)
EVIDENCE_TOKENS = ("evidence_start_token", "evidence_end_token")
IMAGES = ("image", "img", "picture", "photo")
TRIMAPS = ("trimap",)
MASKS = (*TRIMAPS, "mask", "segmentation", "segmentation_mask", "objects")
FLAGS = ("text", "label")  # roles that can be named on the command line
ROLES = ("text", "label", "answers", "tokens", "rationale", "evidences", "image", "mask", "trimap")


@dataclass(frozen=True)
class ImageColumns:
    """The column of the image, and the one of its mask: label numbers, a trimap, or objects with polygons.

    `category` is the one whose pixels are foreground, by name or number; None for all.
    """

    image: str
    mask: str | None = None
    trimap: bool = False  # 1 is the object, 2 the background, 3 the border between them
    category: str | None = None


@dataclass(frozen=True)
class Columns:
    """The columns that hold the text or pair, the label, and what people annotated; None for what there is not."""

    text: tuple[str, ...] = ()  # one, or two for a pair; none if the text is made of the tokens
    label: str | None = None
    answers: str | None = None
    tokens: str | None = None
    rationale: str | None = None  # 0 or 1 for each of the tokens, or a list of such lists
    evidences: tuple[str, ...] = ()  # the texts of the rationale, or the columns of its first and last tokens
    images: ImageColumns | None = field(default=None, repr=False)  # texts have no part of it in their digest
    needs_label: bool = field(default=True, repr=False)  # whether a row without a usable label is a bad one

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that are read."""
        seen = (self.images.image, self.images.mask) if self.images else ()
        single = (self.label, self.answers, self.tokens, self.rationale, *seen)
        return tuple(dict.fromkeys([*self.text, *(name for name in single if name), *self.evidences]))


def find_columns(present: Sequence[str], named: ColumnNames | None, where: str) -> Columns:
    """The columns of a data set; what is ambiguous or missing is refused with the columns that there are."""
    by_role = _by_role(named or {})
    for role, names in by_role.items():
        for name in names:
            if name not in present:
                raise BadInput(f"{where} has no column {shown(name)} for {role}: {nearest(name, present)}")
    return _Finder(present, by_role, where).find()


def _by_role(named: ColumnNames) -> dict[str, tuple[str, ...]]:
    if not isinstance(named, Mapping):
        raise BadOption(f"columns={shown(named)}: a dictionary is needed, such as {{'text': 'body', 'label': 'y'}}")
    by_role = {}
    for role, names in named.items():
        if role not in ROLES:
            raise BadOption(f"columns={{{shown(role)}: …}}: {nearest(str(role), ROLES)}")
        by_role[role] = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Sequence) else ()
        if not by_role[role] or not all(isinstance(name, str) for name in by_role[role]):
            raise BadOption(f"columns={{{role!r}: {shown(names)}}}: the name of a column is needed")
    return by_role


class _Finder:
    """Looks for columns by convention, without regard to capitals."""

    def __init__(self, present: Sequence[str], named: Mapping[str, tuple[str, ...]], where: str) -> None:
        self.names = {name.casefold(): name for name in reversed(present)}
        self.present, self.named, self.where = present, named, where

    def find(self) -> Columns:
        tokens = self._one("tokens", TOKENS)
        text = self._text(tokens)
        label = self._one("label", (*LABELS, *VOTES))
        answers = self._one("answers", ANSWERS)
        rationale = self._one("rationale", RATIONALES) if tokens else None
        if answers and len(text) != 2:
            if "answers" in self.named:
                raise BadInput(f"{self.where}: answers need a question and its context{self._hint()}")
            answers = None
        evidences = tuple(self.names[name] for name in EVIDENCE_TOKENS if name in self.names)
        if len(evidences) != 2 or "evidences" in self.named:
            texts = self._one("evidences", EVIDENCES)
            evidences = (texts,) if texts and not rationale else ()
        return Columns(text, label, answers, tokens, rationale, evidences, self._images(text, tokens))

    @property
    def _pictured(self) -> bool:
        return "image" in self.named or any(name in self.names for name in IMAGES)

    def _images(self, text: tuple[str, ...], tokens: str | None) -> ImageColumns | None:
        """The columns of images: those that are named, or known by their names where there is no text."""
        masks = [role for role in ("mask", "trimap") if role in self.named]
        if "image" not in self.named and (text or tokens):
            if masks:
                raise BadInput(f"{self.where}: a {masks[0]} needs an image beside it{self._hint('image', 'NAME')}")
            return None
        if len(masks) > 1:
            raise BadOption("columns: a mask is either a 'mask' or a 'trimap'; name one of them")
        image = self._one("image", IMAGES)
        mask = self._one(masks[0] if masks else "mask", MASKS)
        trimap = "trimap" in masks or (mask or "").casefold() in TRIMAPS
        return ImageColumns(str(image), mask, trimap)

    def _one(self, role: str, known: Sequence[str]) -> str | None:
        if role in self.named:
            return self.named[role][0]
        here = [self.names[name] for name in known if name in self.names]
        if len(here) > 1:
            raise BadInput(f"{self.where}: the {role} may be {' or '.join(map(repr, here))}{self._hint(role, here[0])}")
        return here[0] if here else None

    def _text(self, tokens: str | None) -> tuple[str, ...]:
        if "text" in self.named:
            if len(self.named["text"]) not in (1, 2):
                raise BadOption(f"columns: the text is one column or a pair of them; found {self.named['text']!r}")
            return self.named["text"]
        here = [tuple(self.names[n] for n in pair) for pair in PAIRS if all(name in self.names for name in pair)]
        in_pairs = {name for pair in here for name in pair}
        here += [(self.names[name],) for name in TEXTS if name in self.names and self.names[name] not in in_pairs]
        if "image" in self.named or (not here and (tokens or self._pictured)):
            return ()
        if not here:
            raise BadInput(f"{self.where}: no text column is known by its name{self._hint('text', 'NAME')}")
        if len(here) > 1:
            either = " or ".join(" + ".join(names) for names in here)
            raise BadInput(f"{self.where}: the text may be {either}{self._hint('text', here[0][0])}")
        return here[0]

    def _hint(self, role: str = "text", name: str = "…") -> str:
        flag = f" (--{role} {name})" if role in FLAGS else ""
        return f"; name it: columns={{{role!r}: {name!r}}}{flag}; found {listed(self.present)}"
