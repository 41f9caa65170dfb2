"""The tables and figures of the papers as recipes, and our numbers beside the published ones."""

from whyformer_papers.reproduce.catalogue import listing, reproduction_named, reproductions
from whyformer_papers.reproduce.everything import Everything, run_all
from whyformer_papers.reproduce.output import csv, markdown, text, write
from whyformer_papers.reproduce.published import Number
from whyformer_papers.reproduce.recipe import RecipeColumn, RecipeMetric, RecipeRow, Reproduction
from whyformer_papers.reproduce.result import Part, RankAgreement, Reproduced, ReproducedNumber
from whyformer_papers.reproduce.runner import run
from whyformer_papers.reproduce.sources import given_data, given_heads, given_limits, given_lm_heads, other_models

__all__ = [
    "Everything",
    "Number",
    "Part",
    "RankAgreement",
    "RecipeColumn",
    "RecipeMetric",
    "RecipeRow",
    "Reproduced",
    "ReproducedNumber",
    "Reproduction",
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
