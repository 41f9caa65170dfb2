"""Texts parsed by spaCy, as parsed sentences."""

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from whyformer.errors import BadInput, MissingExtra, WhyformerError, reason_of, shown
from whyformer_papers.heads.sentences import Sentence

PARSED_AT_ONCE = 64


@dataclass(frozen=True)
class ParsedTexts:
    """Texts that a spaCy pipeline parses as they are asked for; several sentences of a text stay together."""

    pipeline: Any
    texts: Iterable[str]

    def __iter__(self) -> Iterator[Sentence]:
        parsed = 0
        try:
            for document in self.pipeline.pipe(self.texts, batch_size=PARSED_AT_ONCE):
                yield _sentence(document, self.pipeline)
                parsed += 1
        except WhyformerError:
            raise
        except Exception as error:  # the pipeline may hold anything
            raise BadInput(f"the spaCy pipeline failed after {parsed} texts: {reason_of(error)}") from error

    def __len__(self) -> int:
        try:
            return len(self.texts)  # type: ignore[arg-type]
        except TypeError as error:
            raise TypeError("these texts are a stream, and have no length") from error

    @property
    def provenance(self) -> dict[str, Any]:
        """The pipeline's name and version, and spaCy's."""
        meta = self.pipeline.meta
        name = f"{meta.get('lang', '')}_{meta.get('name', '')}"
        return {"pipeline": name, "pipeline_version": meta.get("version", ""), "spacy": _spacy().__version__}


def parsed_by(pipeline: Any, texts: Iterable[str]) -> ParsedTexts:
    """Texts parsed by a spaCy pipeline, given by the name under which it is installed, or in hand."""
    if isinstance(pipeline, str):
        pipeline = _loaded(pipeline)
    elif not hasattr(pipeline, "pipe") or not hasattr(pipeline, "meta"):
        raise BadInput(f"a spaCy pipeline or the name of one is needed, found {type(pipeline).__name__}")
    if isinstance(texts, str):
        raise BadInput(f"a list of texts is needed, found the text {shown(texts)}")
    return ParsedTexts(pipeline, texts)


def _spacy() -> Any:
    try:
        return importlib.import_module("spacy")
    except ImportError as error:
        raise MissingExtra("parsing texts needs spaCy: pip install spacy") from error


def _loaded(name: str) -> Any:
    spacy = _spacy()
    try:
        return spacy.load(name)
    except OSError as error:
        installed = ", ".join(sorted(spacy.util.get_installed_models())) or "none"
        raise MissingExtra(
            f"the spaCy pipeline {name!r} is not installed: python -m spacy download {name} (installed: {installed})"
        ) from error


def _sentence(document: Any, pipeline: Any) -> Sentence:
    """White space is no word, as in treebanks."""
    if len(document) and not document.has_annotation("DEP"):
        parts = ", ".join(pipeline.pipe_names) or "none"
        raise BadInput(f"the spaCy pipeline finds no relations (its parts: {parts}): one with a parser is needed")
    words = [token for token in document if not token.is_space]
    place = {token.i: n for n, token in enumerate(words)}
    relations = [
        (place[token.i], place[token.head.i], token.dep_)
        for token in words
        if token.head.i != token.i and token.head.i in place
    ]
    return Sentence(document.text, tuple((t.idx, t.idx + len(t.text)) for t in words), tuple(relations))
