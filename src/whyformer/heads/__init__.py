"""Which attention heads are syntactic or positional: a treebank or parser in, a head mask out."""

from whyformer.heads.counts import DIRECTIONS, HeadStatistics
from whyformer.heads.mask import HeadMask, Thresholds
from whyformer.heads.parsed import ParsedTexts, parsed_by
from whyformer.heads.sentences import RELATIONS, Sentence
from whyformer.heads.statistics import head_statistics, positional_statistics
from whyformer.heads.treebank import Treebank

__all__ = [
    "DIRECTIONS",
    "RELATIONS",
    "HeadMask",
    "HeadStatistics",
    "ParsedTexts",
    "Sentence",
    "Thresholds",
    "Treebank",
    "head_statistics",
    "parsed_by",
    "positional_statistics",
]
