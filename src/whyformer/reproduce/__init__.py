"""The tables and figures of the papers as recipes, and our numbers beside the published ones."""

from whyformer.reproduce.catalogue import listing, reproduction_named, reproductions
from whyformer.reproduce.lm_heads import given_lm_heads
from whyformer.reproduce.masks import given_heads
from whyformer.reproduce.printed import csv, markdown, text
from whyformer.reproduce.recipe import Column, Measure, Number, Reproduction, Row
from whyformer.reproduce.reproduced import Agreement, Entry, Part, Reproduced
from whyformer.reproduce.running import run
from whyformer.reproduce.sources import other_models
from whyformer.reproduce.written import write

__all__ = [
    "Agreement",
    "Column",
    "Entry",
    "Measure",
    "Number",
    "Part",
    "Reproduced",
    "Reproduction",
    "Row",
    "csv",
    "given_heads",
    "given_lm_heads",
    "listing",
    "markdown",
    "other_models",
    "reproduction_named",
    "reproductions",
    "run",
    "text",
    "write",
]
