"""How far two runs of the same arithmetic may be apart: another machine, batch or thread adds up in another order."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

ROUNDING = {  # as a share of the largest number, after the layers of a model
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}


def close(found: Any, expected: Any, dtype: torch.dtype | None = None) -> bool:
    """Whether two tensors or arrays are the same within rounding, of their own dtype or of a coarser one."""
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    allowed = ROUNDING[coarsest([found.dtype, expected.dtype, *([dtype] if dtype else [])])]
    return found.shape == expected.shape and distance(found, expected) <= allowed


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest number expected."""
    found, expected = found.detach(), expected.detach()
    if not expected.numel():
        return 0.0
    peak = expected.abs().max().clamp(min=torch.finfo(expected.dtype).tiny)
    return float((found - expected).abs().max() / peak)


def coarsest(dtypes: Iterable[torch.dtype]) -> torch.dtype:
    """The dtype with the fewest digits."""
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


def arithmetic(run: Callable[[], object]) -> torch.dtype:
    """The coarsest dtype of the numbers with a gradient that `run` computes, such as `lambda: model(**inputs)`.

    It may be coarser than that of the weights: many models in float64 take their norms or softmaxes in float32.
    """
    watch = _Watch()
    with watch:
        run()
    return coarsest(watch.dtypes)


class _Watch(TorchFunctionMode):
    """Notes the dtypes of what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.dtypes |= {
            leaf.dtype.to_real() for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.requires_grad
        }
        return out
