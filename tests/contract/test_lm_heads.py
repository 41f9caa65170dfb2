"""LM heads: each family's own logits from its own files, and heads that do not fit are refused."""

import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import whyformer
from tests.helpers import cases, families
from whyformer.errors import BadInput, BadOption, UnsupportedModel
from whyformer.methods import logit_lens
from whyformer.methods.logit_lens import FAMILIES, KEPT, LmHead, head_for, load_head, own_head, save_head
from whyformer.models.load import BUNDLED, load
from whyformer.tolerance import close

CONFIGS = families.CONFIGS | {"camembert": lambda: hf.CamembertConfig(**families._ENCODER)}
RENAMED = "gpt_neox"  # transformers calls its decoder otherwise in files than in the model
NAMES = {"xlm-roberta": "xlm_roberta"}
HIDDEN = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def language_model(family: str, **changes: Any) -> Any:
    """Every weight random, the biases and norms too."""
    torch.manual_seed(5)
    config = CONFIGS[NAMES.get(family, family)]()
    config.update(changes)
    auto = hf.AutoModelForCausalLM if family in logit_lens.CAUSAL else hf.AutoModelForMaskedLM
    attention = "eager" if family in families.WITHOUT_SDPA else "sdpa"
    model = auto.from_config(config, attn_implementation=attention).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def saved(folder: Path, family: str = "bert", **changes: Any) -> Path:
    language_model(family, **changes).save_pretrained(folder)
    return folder


def logits(of: LmHead, hidden: Tensor) -> Tensor:
    with torch.no_grad():
        return of.logits(of.states(hidden).flatten(0, 1)).unflatten(0, hidden.shape[:2])


@pytest.fixture
def only_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where a whole model would be read."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the whole model was read")

    monkeypatch.setattr(logit_lens, "_through_transformers", refuse)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logit_lens, "AT_ONCE", 7 * 10)


# Reading


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {RENAMED}))
@pytest.mark.usefixtures("only_the_head")
def test_a_head_says_what_its_model_says(family: str, tmp_path: Path) -> None:
    """From the last layer's output, before the body's final norm where there is one."""
    check_family(family, tmp_path)


def test_names_that_transformers_changes_are_left_to_it(tmp_path: Path) -> None:
    check_family(RENAMED, tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")


def check_family(family: str, tmp_path: Path) -> None:
    model = language_model(family)
    model.save_pretrained(tmp_path)
    given = families.batch()
    hidden = whyformer.record(model, given).hidden[-1].detach()
    with torch.no_grad():
        expected = model(**given).logits
    found = load_head(tmp_path, dtype=torch.float64)
    assert (found.width, found.vocabulary) == (32, families.VOCABULARY)
    torch.testing.assert_close(logits(found, hidden), expected, rtol=1e-10, atol=1e-10)
    mine = own_head(model)
    assert mine is not None
    assert mine.weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()  # no second copy
    torch.testing.assert_close(logits(mine, hidden), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.usefixtures("only_the_head")
def test_a_decoder_of_its_own(family: str, tmp_path: Path) -> None:
    model = language_model(family, tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    found = load_head(tmp_path, dtype=torch.float64)
    assert torch.equal(found.weight, model.get_output_embeddings().weight)
    assert not torch.equal(found.weight, model.get_input_embeddings().weight)


@pytest.mark.usefixtures("only_the_head")
def test_weights_in_several_files(tmp_path: Path) -> None:
    whole, parts = saved(tmp_path / "whole", "gpt2"), tmp_path / "parts"
    hf.GPT2LMHeadModel.from_pretrained(whole).save_pretrained(parts, max_shard_size="30KB")
    assert len(list(parts.glob("*.safetensors"))) > 1
    for unneeded in set(parts.glob("*.safetensors")) - files_of_head(parts):
        unneeded.write_bytes(b"not needed")
    one, other = load_head(whole), load_head(parts)
    assert close(logits(one, HIDDEN), logits(other, HIDDEN))


def files_of_head(folder: Path) -> set[Path]:
    held = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    return {folder / held[name] for name in ("transformer.wte.weight", "transformer.ln_f.weight")}


@pytest.mark.parametrize(
    ("family", "written"),
    [
        ("bert", lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta")),
        ("gpt2", lambda name: name.removeprefix("transformer.")),
    ],
)
@pytest.mark.usefixtures("only_the_head")
def test_names_that_published_files_have(family: str, written: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path, family)
    expected = logits(load_head(folder, dtype=torch.float64), HIDDEN)
    file = folder / "model.safetensors"
    held = load_file(file)
    save_file({written(name): tensor for name, tensor in held.items()}, file, metadata={"format": "pt"})
    assert {written(name) for name in held} != set(held)
    assert close(logits(load_head(folder, dtype=torch.float64), HIDDEN), expected)


def test_a_file_of_its_own(tmp_path: Path) -> None:
    folder = saved(tmp_path / "albert", "albert")
    file = save_head(folder, tmp_path / "head.safetensors")
    assert file.stat().st_size < (folder / "model.safetensors").stat().st_size / 4
    assert {tensor.dtype for tensor in load_file(file).values()} == {torch.float16}
    assert str(tmp_path) not in file.read_bytes()[:4000].decode(errors="replace")
    torch.testing.assert_close(logits(load_head(file), HIDDEN), logits(load_head(folder), HIDDEN), rtol=1e-2, atol=1e-2)
    exact = save_head(folder, tmp_path / "exact.safetensors", torch.float64)
    again = load_head(exact, dtype=torch.float64)
    assert close(logits(again, HIDDEN), logits(load_head(folder, dtype=torch.float64), HIDDEN))


# Slices of the vocabulary


@pytest.mark.usefixtures("small_slices")
def test_slices_give_the_sum_over_the_whole_vocabulary(tmp_path: Path) -> None:
    found = load_head(saved(tmp_path), dtype=torch.float64)
    states = found.states(HIDDEN).flatten(0, 1)
    assert len(list(found._slices(len(states)))) == 9
    for row, number in zip(found.logits(states).tolist(), found.log_normaliser(states).tolist(), strict=True):
        total = sum(torch.tensor(row, dtype=torch.float64).exp().tolist())
        assert number == pytest.approx(torch.tensor(total, dtype=torch.float64).log().item(), abs=1e-12)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("count", [1, 5, 20])
def test_the_most_likely_tokens_of_all_slices(count: int, tmp_path: Path) -> None:
    found = load_head(saved(tmp_path), dtype=torch.float64)
    states = found.states(HIDDEN).flatten(0, 1)
    tokens, values = found.most_likely(states, count)
    for row, own, numbers in zip(found.logits(states).tolist(), tokens.tolist(), values.tolist(), strict=True):
        best = sorted(range(len(row)), key=lambda token: -row[token])[:count]
        assert own == best
        assert numbers == pytest.approx([row[token] for token in best])


def test_logits_too_large_for_an_exponential() -> None:
    huge = LmHead("huge", 2, (), torch.tensor([[1e4, 0.0], [1e4, 0.0], [-1e4, 0.0]]), None)
    assert huge.log_normaliser(torch.tensor([[1.0, 0.0]])).item() == pytest.approx(1e4 + 0.6931, abs=1e-2)


def test_weights_stay_in_their_precision_and_numbers_in_that_of_the_states(tmp_path: Path) -> None:
    found = load_head(saved(tmp_path), dtype=torch.bfloat16)
    states = found.states(HIDDEN.float())
    assert found.weight.dtype == torch.bfloat16
    assert found.log_normaliser(states.flatten(0, 1)).dtype == states.dtype == torch.float32


# Which head goes with a model


def classifier(family: str = "bert", **changes: Any) -> Any:
    config = CONFIGS[family]()
    config.update({"num_labels": 3, **changes})
    torch.manual_seed(8)
    return hf.AutoModelForSequenceClassification.from_config(config).double().eval()


def test_a_head_is_read_once_for_a_model_and_let_go_with_it(tmp_path: Path) -> None:
    model, folder = classifier(), str(saved(tmp_path))
    found = head_for(model, folder, HIDDEN)
    assert head_for(model, folder, HIDDEN[:1, :2]) is found
    assert found.weight.dtype == torch.float64
    gone = weakref.ref(found.weight)
    del found, model
    gc.collect()
    assert gone() is None


def test_a_head_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    model, folder = classifier(), saved(tmp_path)
    before = head_for(model, str(folder), HIDDEN)
    other = language_model("bert")
    with torch.no_grad():
        other.cls.predictions.bias.add_(1)
    other.save_pretrained(folder)
    after = head_for(model, str(folder), HIDDEN)
    assert after is not before
    torch.testing.assert_close(after.bias, before.bias + 1)


def test_few_heads_are_kept(tmp_path: Path) -> None:
    model = classifier()
    folders = [str(saved(tmp_path / str(n))) for n in range(KEPT + 1)]
    held = [weakref.ref(head_for(model, folder, HIDDEN).weight) for folder in folders]
    gc.collect()
    assert [reference() is not None for reference in held] == [False, *[True] * KEPT]


def test_a_causal_classifier_with_tied_embeddings_holds_its_own_head() -> None:
    model = classifier("gpt2")
    found = head_for(model, None, HIDDEN)
    assert found.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
    assert found.steps == (model.transformer.ln_f,)
    expected = model.transformer.ln_f(HIDDEN) @ model.transformer.wte.weight.T
    torch.testing.assert_close(logits(found, HIDDEN), expected.detach())


@pytest.mark.parametrize("model", [classifier("llama"), classifier(), nn.Linear(2, 2)], ids=lambda m: type(m).__name__)
def test_without_a_head_the_error_says_how_to_give_one(model: nn.Module) -> None:
    assert own_head(model) is None
    with pytest.raises(BadOption, match=r"comes with none: give the pretrained checkpoint.*lm_head=FOLDER"):
        head_for(model, None, HIDDEN)


def test_a_head_of_another_width_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, hidden_size=16)
    with pytest.raises(BadOption, match=r"takes states of width 16, and this model's have 32"):
        head_for(classifier(), str(folder), HIDDEN)


def test_a_head_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, vocab_size=61)
    with pytest.raises(BadOption, match=r"vocabulary of 61 tokens, and this model one of 60"):
        head_for(classifier(), str(folder), HIDDEN)


def test_a_head_that_means_other_tokens_is_refused(tmp_path: Path) -> None:
    own = cases.wordpiece()
    folder = saved(tmp_path / "head", vocab_size=len(own))
    model = classifier(vocab_size=len(own))
    own.save_pretrained(folder)
    assert head_for(model, str(folder), HIDDEN, own).name == str(folder)

    other = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = other["model"]["vocab"]
    vocabulary["film"], vocabulary["fine"] = vocabulary["fine"], vocabulary["film"]
    moved = Path(shutil.copytree(folder, tmp_path / "moved"))
    (moved / "tokenizer.json").write_text(json.dumps(other))
    first = min(vocabulary["film"], vocabulary["fine"])
    with pytest.raises(BadOption, match=rf"token {first} is '\w+' to the LM head .* 2 tokens"):
        head_for(classifier(vocab_size=len(own)), str(moved), HIDDEN, own)
    model.save_pretrained(tmp_path / "model")
    own.save_pretrained(tmp_path / "model")
    with pytest.raises(BadOption, match=rf"token {first} is"):  # by the tokenizer beside the model
        head_for(load(tmp_path / "model").model, str(moved), HIDDEN)


# What cannot be read


def test_a_folder_without_a_head_is_refused(tmp_path: Path) -> None:
    classifier().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"BertForSequenceClassification and no LM head"):
        load_head(tmp_path)


def test_a_family_that_is_not_known_is_refused(tmp_path: Path) -> None:
    CONFIGS["deberta_v2"]().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"'deberta-v2' models are not known; known: albert, bert"):
        load_head(tmp_path)


@pytest.mark.parametrize("held", [b"", b"nothing of the kind"])
def test_a_damaged_file_is_refused(held: bytes, tmp_path: Path) -> None:
    file = saved(tmp_path) / "model.safetensors"
    file.write_bytes(held)
    for source in (tmp_path, file):
        with pytest.raises(BadInput, match="could not read the LM head"):
            load_head(source)


def test_a_file_that_does_not_say_whose_head_it_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="does not say whose LM head"):
        load_head(saved(tmp_path) / "model.safetensors")


def test_half_a_head_is_refused(tmp_path: Path) -> None:
    file = save_head(saved(tmp_path), tmp_path / "head.safetensors")
    with logit_lens.safe_open(file, "pt") as opened:  # type: ignore[attr-defined]
        about = opened.metadata()
    held = load_file(file)
    held.pop("cls.predictions.transform.dense.bias")
    save_file(held, file, metadata=about)
    with pytest.raises(UnsupportedModel, match=r"not complete: cls\.predictions\.transform\.dense\.bias"):
        load_head(file)


@pytest.mark.parametrize("source", ["/there/is/none", "./none"])
def test_a_folder_that_is_not_there_is_refused(source: str) -> None:
    with pytest.raises(BadInput, match="there is no folder"):
        load_head(source)


def test_a_hub_id_that_cannot_be_reached_is_said() -> None:
    with pytest.raises(BadInput, match="could not read the LM head of 'no/such-model@v1'"):
        load_head("no/such-model@v1")


def test_a_head_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    with pytest.raises(BadInput, match="could not write"):
        save_head(folder, tmp_path / "no" / "folder" / "head.safetensors")


# The bundle


def test_the_bundled_model_has_a_head_that_knows_its_tokens() -> None:
    """Most tokens are the likeliest in their own place after the first layer, which a shuffled vocabulary undoes."""
    subject = load("sentiment")
    file = BUNDLED / "sentiment" / "lm_head.safetensors"
    found = head_for(subject.model, None, torch.zeros(1, 1, 384))
    assert (found.name, found.width, found.vocabulary) == (str(file), 384, 12_000)
    assert found.weight.dtype == torch.float32
    assert 9e6 < file.stat().st_size < 10e6
    text = "the plot of this film is never dull , and the actors play their parts with wit and charm ."
    encoded = subject.tokenizer(text, return_tensors="pt")
    hidden = whyformer.record(subject.model, encoded).hidden[1].detach()
    tokens, _ = found.most_likely(found.states(hidden)[0, 1:-1], 1)
    right = (tokens[:, 0] == encoded["input_ids"][0, 1:-1]).double().mean().item()
    assert right >= 0.6
