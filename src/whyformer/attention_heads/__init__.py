"""Which attention heads are syntactic or positional: a treebank or parser in, a head mask out."""

from whyformer.attention_heads.counts import DIRECTIONS, RELATIONS, HeadStatistics
from whyformer.attention_heads.mask import HeadMask, Thresholds
from whyformer.attention_heads.parsed import ParsedTexts, parsed_by
from whyformer.attention_heads.sentences import Sentence
from whyformer.attention_heads.statistics import (
    AUTHORS_SEARCH,
    HeadSearch,
    head_statistics,
    positional_statistics,
)
from whyformer.attention_heads.treebank import Treebank

__all__ = [
    "AUTHORS_SEARCH",
    "DIRECTIONS",
    "RELATIONS",
    "HeadMask",
    "HeadSearch",
    "HeadStatistics",
    "ParsedTexts",
    "Sentence",
    "Thresholds",
    "Treebank",
    "head_statistics",
    "parsed_by",
    "positional_statistics",
]
