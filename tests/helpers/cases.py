"""Small classifiers, tokenizers built in place, and cases with seeded scores."""

from functools import cache
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.helpers import families
from whyformer.inputs.batch import collate, encode
from whyformer.metrics import Annotation, Case
from whyformer.models.load import Subject, subject_of
from whyformer.perturb import Outcomes
from whyformer.prediction import Prediction

TEXTS = ["the film is a fine film", "a bad film", "the actors like it, and the film is not bad at all", "fine acting"]
PAIR = ("the film is fine", "a bad film")
LETTERS = "abcdefghijklmnopqrstuvwxyz,.'"


def wordpiece(mask: bool = True) -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(["[MASK]"] if mask else [])]
    pieces = [*LETTERS, *(f"##{c}" for c in LETTERS), "the", "film", "fine", "is", "bad", "act", "##ing", "##ors"]
    backend = Tokenizer(models.WordPiece({p: i for i, p in enumerate([*special, *pieces])}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    if mask:
        names["mask_token"] = "[MASK]"
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **names)


def byte_level(special: list[str]) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=len(special) + 286, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS * 3, trainer)
    return backend


def gpt2() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_level(["<|end|>"]), bos_token="<|end|>", eos_token="<|end|>", unk_token="<|end|>"
    )


def roberta() -> PreTrainedTokenizerFast:
    backend = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="<mask>", bos_token="<s>", **names)


def unigram() -> PreTrainedTokenizerFast:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [(c, -9.0) for c in ["▁", *LETTERS]] + [(p, -4.0) for p in ("▁a", "▁the", "▁film", "ing")]
    backend = Tokenizer(models.Unigram([*((s, 0.0) for s in special), *pieces], unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]
    )
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


KINDS = {
    "bert": wordpiece,
    "bert_without_mask": lambda: wordpiece(mask=False),
    "roberta": roberta,
    "gpt2": gpt2,
    "llama": unigram,
}


@cache
def subject(kind: str = "bert", labels: int = 3, problem: str | None = None) -> Subject:
    tokenizer = KINDS[kind]()
    torch.manual_seed(2)
    config: Any = families.CONFIGS[kind.partition("_")[0]]()
    config.num_labels, config.vocab_size, config.problem_type = labels, len(tokenizer), problem
    config.max_position_embeddings = 128
    config.pad_token_id = tokenizer.pad_token_id
    model = hf.AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa").double().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return subject_of(model, tokenizer)


def predicted(texts: list[Any], kind: str = "bert", target: Any = None, **options: Any) -> Prediction:
    own = subject(kind, **options)
    return Prediction(own.model, collate(own, [encode(own, text) for text in texts]), target)


def case(
    texts: list[Any] = TEXTS,
    kind: str = "bert",
    annotations: list[Annotation] | None = None,
    outcomes: Outcomes | None = None,
    seed: int = 0,
    target: Any = None,
    **options: Any,
) -> Case:
    """Scores that depend on the text, the class and the seed alone."""
    prediction = predicted(texts, kind, target, **options)
    own = subject(kind, **options)

    def scores_for(classes: torch.Tensor) -> torch.Tensor:
        scores = torch.zeros(prediction.padding.shape, dtype=torch.float64)
        for row, (text, index) in enumerate(zip(texts, classes.tolist(), strict=True)):
            stream = torch.Generator().manual_seed(seed + 100 * len(str(text)) + index)
            length = len(prediction.batch.examples[row].units)
            scores[row, :length] = torch.randn(length, generator=stream, dtype=torch.float64)
        return scores

    engine = outcomes or Outcomes(own.model)
    return Case(prediction, scores_for(prediction.target), engine, annotations or (), scores_for)
