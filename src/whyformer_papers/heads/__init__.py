"""Which attention heads are syntactic or positional (Mask-LRP): a treebank or parser in, a head mask out."""

from whyformer_papers.heads.parsed import ParsedTexts, parsed_by
from whyformer_papers.heads.sentences import Sentence
from whyformer_papers.heads.statistics import AUTHORS_SEARCH, HeadSearch, head_statistics, positional_statistics
from whyformer_papers.heads.treebank import Treebank

__all__ = [
    "AUTHORS_SEARCH",
    "HeadSearch",
    "ParsedTexts",
    "Sentence",
    "Treebank",
    "head_statistics",
    "parsed_by",
    "positional_statistics",
]
