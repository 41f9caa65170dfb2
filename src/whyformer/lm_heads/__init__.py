"""LM heads: what turns hidden states into the logits of a vocabulary, read without the rest of its model."""

from whyformer.lm_heads.fitting import head_for, own_head
from whyformer.lm_heads.head import LmHead
from whyformer.lm_heads.stored import FAMILIES, load_head, save_head

__all__ = ["FAMILIES", "LmHead", "head_for", "load_head", "own_head", "save_head"]
