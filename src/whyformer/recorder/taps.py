"""Taps: what is made of an attention map and its gradient, [batch, heads, queries, keys], where a pass meets them."""

from torch import Tensor


def positive_products(attention: Tensor, gradient: Tensor) -> Tensor:
    """`E_h (G ⊙ A)⁺`, [batch, queries, keys]."""
    return (gradient * attention).clamp(min=0).mean(1)


def positive_gradients(attention: Tensor, gradient: Tensor) -> Tensor:
    """`E_h (A ⊙ G⁺)`, [batch, queries, keys]."""
    return (attention * gradient.clamp(min=0)).mean(1)
