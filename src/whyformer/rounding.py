"""How far two runs of the same arithmetic may be apart: another machine, batch or thread adds up in another order."""

import torch

ROUNDING = {  # as a share of the largest number, after the layers of a model
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
