"""Which position a head reads, which answer is predicted, and what counts as attention, in odd cases."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from whyformer.tasks.question_answering import ANSWER_LENGTH, Answers
from whyformer.tasks.task import ModelOutputs
from whyformer.tolerance import close


def test_a_head_that_reads_a_part_of_the_width_reads_that_position() -> None:
    model = copy.deepcopy(families.build("bert"))
    with torch.no_grad():
        model.bert.pooler.dense.weight[:, 3] = 0
    reader = whyformer.record(model, families.batch()).read_for()
    assert reader[:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("end", "found"), [(ANSWER_LENGTH - 1, True), (ANSWER_LENGTH, False)])
def test_no_predicted_answer_is_longer(end: int, found: bool, dtype: torch.dtype) -> None:
    logits = torch.zeros(1, 2, 50, dtype=dtype)
    logits[0, 0, 0] = logits[0, 1, end] = 5
    outputs = ModelOutputs(logits, Answers(), torch.ones(1, 50, dtype=torch.bool))
    assert (outputs.predicted.tolist() == [[0, end]]) == found


def test_a_target_in_padding_is_refused() -> None:
    outputs = ModelOutputs(torch.zeros(2, 2, 5), Answers(), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool())
    assert outputs.chosen((1, 2)).tolist() == [[1, 2], [1, 2]]
    with pytest.raises(whyformer.BadOption, match="position 4 of example 1 is padding"):
        outputs.chosen((1, 4))


class Mixture(nn.Module):
    """A head whose softmax weighs the rows of a table: no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.choice, self.table = nn.Linear(32, 4), nn.Parameter(torch.randn(4, 3))

    def forward(self, states: Tensor) -> Tensor:
        return self.choice(states).softmax(-1) @ self.table


def test_a_softmax_over_rows_of_a_table_is_no_attention() -> None:
    model = copy.deepcopy(families.build("bert"))
    torch.manual_seed(0)
    model.classifier = Mixture().double()
    trace = whyformer.record(model, families.batch())
    assert [tuple(a.shape) for a in trace.attention] == [(3, 4, 9, 9)] * 2


class Block(nn.Module):
    """One head of attention, written as `A V`, or turned round as `(Vᵀ Aᵀ)ᵀ`."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.turned = turned
        self.embedding, self.qkv, self.head = nn.Embedding(20, 8), nn.Linear(8, 24), nn.Linear(8, 2)

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids: Tensor) -> SimpleNamespace:
        states = self.embedding(input_ids)
        query, key, value = self.qkv(states).chunk(3, -1)
        weights = (query @ key.mT).softmax(-1)
        context = (value.mT @ weights.transpose(-1, -2)).mT if self.turned else weights @ value
        return SimpleNamespace(logits=self.head((states + context)[:, 0]))


@pytest.mark.parametrize("method", ["cp_lrp", "attn_lrp"])
def test_attention_that_is_turned_round_is_the_same(method: str) -> None:
    """Probabilities are the constant of `cp_lrp`, on whichever side of the product they stand."""
    scores = []
    for turned in (False, True):
        torch.manual_seed(0)
        model = Block(turned).double().eval()
        scores.append(whyformer.attribute(model, {"input_ids": torch.arange(10).view(2, 5)}, method, target=1))
    assert close(scores[1], scores[0])
