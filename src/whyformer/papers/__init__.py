"""The tables and figures of the papers as recipes, and our numbers beside the published ones."""

from whyformer.papers.catalogue import listing, reproduction_named, reproductions
from whyformer.papers.everything import Everything, run_all
from whyformer.papers.output import csv, markdown, text, write
from whyformer.papers.recipe import Column, Measure, Number, Reproduction, Row
from whyformer.papers.result import Agreement, Entry, Part, Reproduced
from whyformer.papers.runner import run
from whyformer.papers.sources import given_data, given_heads, given_limits, given_lm_heads, other_models

__all__ = [
    "Agreement",
    "Column",
    "Entry",
    "Everything",
    "Measure",
    "Number",
    "Part",
    "Reproduced",
    "Reproduction",
    "Row",
    "csv",
    "given_data",
    "given_heads",
    "given_limits",
    "given_lm_heads",
    "listing",
    "markdown",
    "other_models",
    "reproduction_named",
    "reproductions",
    "run",
    "run_all",
    "text",
    "write",
]
