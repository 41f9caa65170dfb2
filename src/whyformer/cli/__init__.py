"""The command line: explain, compare, methods, metrics, evaluate, recommend, reproduce, report."""

import whyformer.cli.evaluating
import whyformer.cli.explaining  # noqa: F401  (these lines register the commands)
from whyformer.cli.app import app, main

__all__ = ["app", "main"]
