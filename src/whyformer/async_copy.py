"""Landing: numbers that come from a device, or go to it, while Python goes on."""

import torch
from torch import Tensor


class Landing:
    """Tensors on their way to the CPU: whoever wants them waits for what the device was asked before, and no more."""

    def __init__(self, *tensors: Tensor):
        self._tensors = tuple(one.detach().to("cpu", non_blocking=one.is_cuda) for one in tensors)  # which is pinned
        devices = {one.device for one in tensors if one.is_cuda}
        self._landed = [torch.cuda.current_stream(device).record_event() for device in devices]

    @property
    def is_over(self) -> bool:
        """Whether they are there."""
        return all(event.query() for event in self._landed)

    def wait(self) -> None:
        """Wait until they are there."""
        for event in self._landed:
            event.synchronize()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors, once they are there."""
        self.wait()
        return self._tensors


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device; a GPU is not waited for, which takes memory that is pinned."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
