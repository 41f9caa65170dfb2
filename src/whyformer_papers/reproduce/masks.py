"""The head mask of a column: a file that was given, or found in a treebank or in the column's own texts."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from whyformer.datasets import Dataset
from whyformer.errors import BadInput, BadOption, UnsupportedModel
from whyformer.inputs.batch import Text
from whyformer.methods.head_mask import HeadMask
from whyformer.models.load import Subject, text_config
from whyformer.progress import counting
from whyformer.storage.files import make_folder, regular
from whyformer_papers.heads import (
    AUTHORS_SEARCH,
    HeadSearch,
    ParsedTexts,
    Treebank,
    head_statistics,
    parsed_by,
    positional_statistics,
)
from whyformer_papers.reproduce.recipe import RecipeColumn, Reproduction
from whyformer_papers.reproduce.sources import Given, Opened, ReproductionSettings, check_columns

PARSE = "give --treebank FILE (treebank=), --spacy NAME (spacy=), or --heads FILE (heads=) made from either"
SOURCES = {"treebank": "of", "data": "of", "pipeline": "parsed by"}  # what a mask may know of its corpus


@dataclass(frozen=True, eq=False)
class ColumnMask:
    """The head mask of a column, the file that has it, and where it comes from, in words."""

    mask: HeadMask
    path: Path
    origin: str

    @property
    def sentence(self) -> str:
        """Which mask it is: how many heads it keeps, of which kind, from what."""
        return f"the head mask keeps {kept_heads(self.mask)}, {self.origin}"


def kept_heads(mask: HeadMask) -> str:
    """How many heads a mask keeps, and of which kind."""
    count = f"{mask.kept.sum()} of {mask.kept.size} heads"
    if mask.statistics is None:
        return f"{count}, of kinds that it does not tell"
    if not is_parsed(mask):
        return f"{count}, positional heads only"
    positional, syntactic = (mask.positional & mask.kept).sum(), (mask.syntactic & mask.kept).sum()
    relations = ", ".join(f"{relation} {(heads & mask.kept).sum()}" for relation, heads in mask.by_relation.items())
    return f"{count} ({positional} positional, {syntactic} syntactic: {relations})"


def heads_of_columns(recipe: Reproduction, columns: Sequence[RecipeColumn], heads: Given) -> dict[str, Path]:
    """The files by column; `BadOption` if there is no such column, `BadInput` if a file is not a head mask."""
    if heads and not recipe.masked:
        raise BadOption(f"{recipe.name} uses no head mask: leave --heads (heads=) out")
    if isinstance(heads, (str, Path)):
        if len(columns) > 1:
            folders = ", ".join(check_columns(recipe, ()))
            raise BadOption(
                f"{str(heads)!r} is one head mask, and there are several columns: say for which, as COLUMN=FILE, of "
                f"{folders}"
            )
        heads = {column.folder: heads for column in columns}
    check_columns(recipe, heads)
    for path in heads.values():
        HeadMask.load(path)
    return {name: Path(path) for name, path in heads.items()}


def column_mask(
    recipe: Reproduction, opened: Opened, subject: Subject, settings: ReproductionSettings, folder: Path
) -> ColumnMask | str:
    """The head mask of a column, from its file or its texts; or why there is none, an error if masks are shown.

    The mask of the texts is written to the folder.
    """
    file = settings.heads.get(opened.column.folder)
    try:
        if file:
            mask = _mask_of_file(opened.column, file, subject)
        else:
            mask = _searched_mask(opened, subject, settings, folder)
        if recipe.needs_parse and not is_parsed(mask.mask):
            raise BadInput(f"{recipe.name} needs a parse, and {mask.path.name} comes from texts without one: {PARSE}")
    except (BadInput, UnsupportedModel) as error:
        if recipe.shows_masks:
            raise
        return f"there is no head mask ({error})"
    return mask


def check_parse(recipe: Reproduction, column: RecipeColumn, settings: ReproductionSettings) -> None:
    """Raise if a figure needs a parse, and there will be none."""
    parsed = settings.pipeline is not None or settings.treebank is not None or column.folder in settings.heads
    if recipe.needs_parse and not parsed:
        raise BadInput(f"{recipe.name} needs a parse of the texts: {PARSE}")


def is_parsed(mask: HeadMask) -> bool:
    """Whether the mask knows a parse."""
    return mask.statistics is not None and bool(mask.statistics.arc_counts.any())


def _mask_of_file(column: RecipeColumn, path: Path, subject: Subject) -> ColumnMask:
    mask = HeadMask.load(path)
    config = text_config(subject.model)
    shape = tuple(getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
    if None not in shape and shape != mask.shape:
        raise BadOption(
            f"{column.label}: the head mask {str(path)!r} is for {mask.shape[0]} layers of {mask.shape[1]} heads, and "
            f"{subject.name} has {shape[0]} of {shape[1]}: make one with `whyformer heads --model …`, or leave it out"
        )
    about = mask.provenance
    known = about.get("corpus", {})
    facts = [f"{about['sentences']:,} sentences"] if "sentences" in about else []
    facts += [f"{word} {known[name]}" for name, word in SOURCES.items() if name in known]
    if about.get("fingerprint") not in (None, subject.fingerprint):
        facts.append(f"made for {about.get('model')}")
    return ColumnMask(mask, path, f"and was given as {path.name}" + (f" ({', '.join(facts)})" if facts else ""))


@dataclass(frozen=True, eq=False)
class ColumnTexts:
    """The texts of a data set, as often as wanted; `apart` takes the texts of a pair one by one."""

    data: Dataset
    apart: bool

    def __iter__(self) -> Iterator[Text]:
        for example in self.data:
            if isinstance(example.text, str) or not self.apart:
                yield example.text
            else:
                yield from (text for text in example.text if text.strip())

    def __len__(self) -> int:
        return self._counted[0]

    @property
    def provenance(self) -> dict[str, str]:
        """The name of the data set."""
        return {"data": self.data.name}

    @property
    def digest(self) -> str:
        """A hash of all texts, in order."""
        return self._counted[1]

    @cached_property
    def _counted(self) -> tuple[int, str]:
        count, digest = 0, hashlib.blake2b(digest_size=16)
        for text in self:
            digest.update(repr(text).encode() + b"\n")
            count += 1
        return count, digest.hexdigest()


def _searched_mask(opened: Opened, subject: Subject, settings: ReproductionSettings, folder: Path) -> ColumnMask:
    """The mask of the treebank, or of the column's texts.

    Its file is named after model, corpus, parser and search, and is read if it is there.
    """
    corpus = _Corpus.of(opened, settings)
    facts = {"fingerprint": subject.fingerprint, **corpus.facts, "search": vars(settings.search)}
    name = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=4).hexdigest()
    path = folder / f"heads-{name}.json"
    mask = HeadMask.load(path) if regular(path).is_file() else None
    if mask is None or mask.provenance.get("of") != facts:
        with counting(f"heads, {opened.column.label}"):
            mask = corpus.counted(subject, settings.search)
        if mask.provenance["interrupted"]:
            raise KeyboardInterrupt
        mask = replace(mask, provenance={**mask.provenance, "of": facts})
        mask.save(make_folder(path.parent) / path.name)
    return ColumnMask(mask, path, f"{corpus.origin}; {_described(settings.search)}")


@dataclass(frozen=True, eq=False)
class _Corpus:
    """What heads are counted in: parsed sentences, or texts; what identifies it, and where it comes from, in words."""

    sentences: Treebank | ParsedTexts | None
    texts: ColumnTexts | None
    facts: Mapping[str, Any]
    origin: str

    @classmethod
    def of(cls, opened: Opened, settings: ReproductionSettings) -> "_Corpus":
        treebank, pipeline = settings.treebank, settings.pipeline
        if treebank is not None:
            known = treebank.provenance
            return cls(treebank, None, known, f"found in the {len(treebank):,} sentences of {known['treebank']}")
        assert opened.data is not None
        texts = ColumnTexts(opened.data, apart=pipeline is not None)
        parsed = None if pipeline is None else parsed_by(pipeline, texts)  # type: ignore[arg-type]
        parser = None if parsed is None else parsed.provenance
        return cls(parsed, texts, {"texts": texts.digest, "parser": parser}, _origin(texts, parser))

    def counted(self, subject: Subject, search: HeadSearch) -> HeadMask:
        """The heads of a model: positional ones alone where nothing is parsed."""
        if self.sentences is not None:
            return head_statistics(subject, self.sentences, **vars(search))
        assert self.texts is not None
        return positional_statistics(subject, self.texts, special_tokens=search.special_tokens)


def _described(search: HeadSearch) -> str:
    """How heads were looked for, in words."""
    if search == AUTHORS_SEARCH:
        return "looked for as in the authors' code"
    options = ", ".join(f"{name}={value}" for name, value in vars(search).items())
    return f"looked for with {options}"


def _origin(texts: ColumnTexts, parser: Mapping[str, Any] | None) -> str:
    origin = f"found in the {len(texts):,} texts of the data itself"
    if parser is None:
        return f"{origin} (no parse)"
    name = " ".join(filter(None, (parser["pipeline"], parser["pipeline_version"])))
    first = next(iter(texts.data), None)
    pairs = first is not None and not isinstance(first.text, str)
    return f"{origin}, parsed by {name}" + (", each text of a pair by itself" if pairs else "")
