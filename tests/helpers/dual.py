"""Tiny random models that compare images with texts, with a tokenizer of words and an image processor."""

from functools import cache
from typing import Any

import torch
import transformers as hf
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from whyformer.models.load import PlainProcessor, Subject

WORDS = ["a", "photo", "of", "cat", "dog", "the", "red", "blue", "on", "mat"]
PAD, UNKNOWN, BOS, EOS = 0, 1, 2, 3 + len(WORDS)  # CLIP reads the text where its largest number stands
SIDE, WINDOW = 32, 12
SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {**SMALL, "vocab_size": EOS + 1, "max_position_embeddings": WINDOW, "pad_token_id": PAD, "bos_token_id": BOS}
VISION = {**SMALL, "image_size": SIDE, "patch_size": 8}
MODELS = {
    "clip": hf.CLIPConfig,
    "metaclip_2": hf.MetaClip2Config,
    "siglip": hf.SiglipConfig,
    "altclip": hf.AltCLIPConfig,
    "chinese_clip": hf.ChineseCLIPConfig,
}


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"<pad>": PAD, "<unk>": UNKNOWN, "<s>": BOS, "</s>": EOS} | {w: 3 + n for n, w in enumerate(WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


@cache
def build(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model whose similarities are far from equal."""
    torch.manual_seed(7)
    text = {**TEXT, "eos_token_id": EOS, "projection_dim": 24, "project_dim": 24, "projection_size": 32}
    config = MODELS[name](text_config=text, vision_config=dict(VISION), projection_dim=24)
    model = hf.AutoModelForZeroShotImageClassification.from_config(config)
    for path, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.25)
        elif path == "logit_bias":
            nn.init.constant_(parameter, -1.5)
    return model.to(dtype).eval()


def subject(name: str, dtype: torch.dtype = torch.float32) -> Subject:
    processor = PlainProcessor({"size": {"height": SIDE, "width": SIDE}})
    return Subject(build(name, dtype), tokenizer(), (), name, processor=processor)


def photo(seed: int = 0, width: int = 48, height: int = 40) -> Image.Image:
    generator = torch.Generator().manual_seed(seed)
    return Image.fromarray(torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8).numpy())


def stock(name: str, image: Image.Image, texts: list[str]) -> Tensor:
    """The model's own similarities of an image with texts, read as it was trained."""
    of = subject(name)
    full = {"padding": "max_length", "max_length": WINDOW} if name == "siglip" else {"padding": True}
    read = of.tokenizer(texts, return_tensors="pt", return_token_type_ids=False, **full)
    if name == "siglip":
        del read["attention_mask"]
    with torch.no_grad():
        return of.model(**read, **of.processor(image)).logits_per_image[0]
