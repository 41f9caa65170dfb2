"""For every task, an input has the same scores in a batch as alone.

One method of each way to record is run; `test_methods.py` runs every method on classifiers of texts.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.helpers import families, image_cases, questions
from tests.helpers.choosing import CHOICES, TEXT, chooser, scorer
from tests.helpers.token_outputs import ASKED, explainer, texts
from whyformer import Explainer

Asked = dict[str, Any]  # the arguments of `explain` for one input, or for several: a list of each

PAIR = ("what is fine?", "the film is fine")
OTHERS = ("it", "the actors like it, and it is not bad")


def token_outputs(task: str, kind: str) -> tuple[Explainer, list[Asked]]:
    """An explainer of outputs at tokens, and texts of different lengths."""
    return explainer(task, kind), [{"input": text, **ASKED[task]} for text in texts(task, kind)]


TASKS: dict[str, Callable[[], tuple[Explainer, list[Asked]]]] = {
    "score": lambda: (scorer(), [{"input": text} for text in (TEXT, PAIR, "a bad film, but fine acting it is")]),
    "choice": lambda: (
        chooser(),
        [{"input": OTHERS[1], "choices": OTHERS, "target": 0}, {"input": TEXT, "choices": CHOICES, "target": 0}],
    ),
    "answer": lambda: (
        Explainer(questions.answering(), questions.tokenizer()),
        [{"question": question, "context": context} for question, context in questions.QUESTIONS[:3]],
    ),
    "image": lambda: (Explainer(image_cases.subject()), [{"input": image_cases.photo(seed)} for seed in range(3)]),
    "label of a token": lambda: token_outputs("token_labels", "bert"),
    "masked word": lambda: token_outputs("masked_word", "roberta"),
    "next token": lambda: token_outputs("next_token", "llama"),
    "next token without padding": lambda: token_outputs("next_token", "gpt2"),
}


def explained(own: Explainer, method: str, asked: Asked) -> Any:
    options = families.BELOW.get(method, {}) | families.OPTIONS.get(method, {})
    keywords = {name: value for name, value in asked.items() if name != "input"}
    return own.explain(asked.get("input"), method, **keywords, **options)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", families.ONE_OF_EACH)
@pytest.mark.filterwarnings("ignore::whyformer.CompletenessWarning")
def test_batches_do_not_change_scores(method: str, task: str) -> None:
    own, several = TASKS[task]()
    together = explained(own, method, {name: [asked[name] for asked in several] for name in several[0]})
    assert len(together) == len(several)
    assert any(found.scores.any() for found in together)
    for asked, found in zip(several, together, strict=True):
        alone = explained(own, method, asked)
        assert (found.units, found.target) == (alone.units, alone.target)
        assert np.abs(found.scores - alone.scores).max() <= 1e-6 * np.abs(alone.scores).max()
