"""Result tables of our own: studies as data, one CSV file each, and summaries of them for the docs."""

from whyformer_papers.results.studies import STUDIES
from whyformer_papers.results.study import Study
from whyformer_papers.results.summaries import SUMMARIES, write_summaries

__all__ = ["STUDIES", "SUMMARIES", "Study", "write_summaries"]
