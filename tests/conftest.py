"""Settings for all tests: no network, and one thread for each worker (tiny models are slower with more)."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)
