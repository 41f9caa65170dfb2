"""The command line: explain, compare, methods, heads, metrics, evaluate, tokens, recommend, reproduce, report."""

import whyformer.cli.evaluating
import whyformer.cli.explaining
import whyformer.cli.heads
import whyformer.cli.tokens  # noqa: F401  (these lines register the commands)
from whyformer.cli.app import app, main

__all__ = ["app", "main"]
