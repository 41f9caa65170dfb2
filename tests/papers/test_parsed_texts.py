"""spaCy: a blank pipeline with a parser made of rules; what is missing is named."""

import sys
from importlib.metadata import version
from typing import Any

import pytest

from whyformer.errors import BadInput, MissingExtra
from whyformer_papers.heads import parsed_by

RULES = {"film": ("like", "dobj"), "actors": ("like", "nsubj"), "fine": ("film", "amod")}


def rules(document: Any) -> Any:
    from spacy.tokens import Doc

    root = next(token for token in document if token.text == "like")
    heads, labels = [], []
    for token in document:
        head, label = RULES.get(token.text, (None, "dep"))
        found = next((other for other in document if other.text == head), root)
        heads.append(found.i)
        labels.append("ROOT" if token.i == root.i else label)
    return Doc(
        document.vocab, [t.text for t in document], [bool(t.whitespace_) for t in document], heads=heads, deps=labels
    )


@pytest.fixture
def pipeline() -> Any:
    import spacy
    from spacy.language import Language

    Language.component("rules_of_this_test", func=rules)
    made = spacy.blank("en")
    made.add_pipe("rules_of_this_test")
    return made


def test_words_and_relations_come_from_the_pipeline(pipeline: Any) -> None:
    texts = ["the actors like a  fine film.", "\nfilm, like that"]
    parsed = parsed_by(pipeline, texts)
    first, second = parsed
    assert first.text == texts[0]
    assert [first.text[slice(*w)] for w in first.words] == ["the", "actors", "like", "a", "fine", "film", "."]
    assert {r for r in first.relations if r[2] != "dep"} == {(1, 2, "nsubj"), (5, 2, "dobj"), (4, 5, "amod")}
    assert [second.text[slice(*w)] for w in second.words] == ["film", ",", "like", "that"]
    assert (0, 2, "dobj") in second.relations
    assert len(parsed) == 2
    assert parsed.provenance["spacy"] == version("spacy")
    assert parsed.provenance["pipeline"].startswith("en_")
    streamed = parsed_by(pipeline, iter(texts))
    with pytest.raises(TypeError, match="stream"):
        len(streamed)
    assert list(streamed) == [first, second]


def test_a_pipeline_without_a_parser_is_refused() -> None:
    import spacy

    with pytest.raises(BadInput, match=r"finds no relations .*a parser is needed"):
        list(parsed_by(spacy.blank("en"), ["a film"]))
    with pytest.raises(BadInput, match="a spaCy pipeline or the name of one is needed, found int"):
        parsed_by(3, ["a film"])


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingExtra, match="'xx_no_such_thing' is not installed: python -m spacy download"):
        parsed_by("xx_no_such_thing", ["a film"])
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtra, match="pip install spacy"):
        parsed_by("en_core_web_sm", ["a film"])
