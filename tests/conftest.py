"""Settings for all tests: no network, no choices of the user's, one thread for each worker (tiny models are small)."""

import os
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["WHYFORMER_CACHE"] = str(Path(tempfile.gettempdir()) / f"whyformer-tests-{os.getpid()}")

import torch

torch.set_num_threads(1)
