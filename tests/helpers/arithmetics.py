"""Other arithmetics than this machine's: what another CPU would do to the same sums.

`shifted` puts the weights at odd addresses, where kernels begin their sums elsewhere. `rounded` rounds every matrix
product differently at each call, as if its sums were added up in another order.
"""

import warnings
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

VARIABLE = "WHYFORMER_TEST_ARITHMETIC"
ALIGNED = 64  # bytes: where torch puts what it allocates
ULPS = 2  # how far a product is moved, in units of its last digit

_KERNELS = torch.library.Library("aten", "IMPL")  # in force as long as it lives


def apply(name: str) -> None:
    """Set an arithmetic for this process; none for the empty name."""
    {"": lambda: None, "shifted": _shift_weights, "rounded": _round_products}[name]()


def _shift_weights() -> None:
    """Every model moves its weights when it is put in evaluation mode."""
    plain = nn.Module.eval

    @wraps(plain)
    def shifting(module: nn.Module) -> nn.Module:
        for parameter in module.parameters():
            if type(parameter.data) is Tensor and parameter.device.type == "cpu" and parameter.is_contiguous():
                parameter.data = shifted(parameter.data)
        return plain(module)

    nn.Module.eval = shifting  # type: ignore[assignment, method-assign]


def shifted(tensor: Tensor) -> Tensor:
    """A copy of what lies at a round address, one element further."""
    if tensor.data_ptr() % ALIGNED:
        return tensor
    buffer = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    return buffer[1:].view(tensor.shape).copy_(tensor)


def _round_products() -> None:
    noise = np.random.default_rng(0)

    def rounding(name: str) -> Any:
        plain = getattr(torch.ops.aten, name).out

        def product(*operands: Any, **options: Any) -> Tensor:
            left, right = operands[-2:]
            shape = (*left.shape[:-1], right.shape[-1])
            found: Tensor = plain(*operands, **options, out=left.new_empty(shape))
            if found.dtype not in (torch.float64, torch.float32):  # half precision adds up in float32
                return found
            if left.shape[-1] == 1 and len(operands) == 2:  # one product, no sum: the same on every machine
                return found
            drawn = torch.from_numpy(noise.uniform(-ULPS, ULPS, shape)).to(found.dtype)
            return found.mul_(1 + torch.finfo(found.dtype).eps * drawn)

        return product

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced
        for name in ("mm", "bmm", "addmm", "baddbmm"):
            _KERNELS.impl(name, rounding(name), "CPU")
