"""Settings for all tests: no network, no choices of the user's, one thread for each worker (tiny models are small)."""

import os
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["WHYFORMER_CACHE"] = str(Path(tempfile.gettempdir()) / f"whyformer-tests-{os.getpid()}")

import pytest
import torch

torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    """Tests take few steps and samples, with which scores do not add up; tests of the warning ask for it."""
    config.addinivalue_line("filterwarnings", "ignore::whyformer.errors.CompletenessWarning")
