"""Which words speak for which class, and which of them classes share (the Decoded paper)."""

from whyformer_papers.words.idf import Idf
from whyformer_papers.words.overlap import Counting
from whyformer_papers.words.table import WordTable, load_tables, save_tables, tables_of
from whyformer_papers.words.tally import idf_called, word_tables

__all__ = ["Counting", "Idf", "WordTable", "idf_called", "load_tables", "save_tables", "tables_of", "word_tables"]
