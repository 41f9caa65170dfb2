"""Models of timm, explained in a process of their own, which prints what was found as JSON.

timm imports torchvision. The wheel of torchvision on PyPI is built for CUDA: beside a torch for CPUs it has no
operators, and then it cannot be imported, nor can transformers, which looks for it. So `make test` installs both in a
folder apart, without what they depend on, and only this process looks there. Where the operators are missing, the two
that torchvision asks for by name as it is imported, which find boxes in images, are given a name and nothing behind it;
no model here calls them.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

FOLDER = Path(sys.prefix) / "timm"
OPERATORS = ("nms", "qnms")
LABELS = ["cat", "dog", "bird", "fish"]
METHODS = ("rollout", "attn_lrp", "transformer_attribution", "gae", "alti", "occlusion")
SIDE = 32
VIT: dict[str, Any] = {"embed_dim": 32, "depth": 2, "num_heads": 4, "img_size": SIDE, "patch_size": 8}
MODELS: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": VIT,
    "deit_tiny_distilled_patch16_224": VIT,
    "deit3_small_patch16_224": VIT,
    "vit_small_patch14_reg4_dinov2": VIT,
    "vit_medium_patch16_gap_240": VIT,
    "vit_base_patch16_clip_224": VIT,
    "vit_base_patch16_siglip_224": VIT,
    "beit_base_patch16_224": VIT,
    "eva02_tiny_patch14_224": VIT,
    "cait_xxs24_224": VIT,
    "swin_tiny_patch4_window7_224": {
        "embed_dim": 16,
        "depths": (1, 1),
        "num_heads": (2, 4),
        "img_size": SIDE,
        "window_size": 4,
    },
    "resnet18": {},
}


def make_importable() -> None:
    """Give torchvision what it needs to be imported."""
    import torch

    sys.path.append(str(FOLDER))
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in OPERATORS:
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float overlap) -> Tensor")


def facts(model: Any) -> dict[str, Any]:
    """What the recorder finds in a model, and which methods explain it."""
    import torch

    from whyformer import Explainer, WhyformerError
    from whyformer.recorder import Layers, record

    pixels = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        stock = model(pixels)
    trace = record(model, {"pixel_values": pixels})
    layers = trace.layers
    explainer = Explainer(model, lambda image: pixels[0], labels=LABELS)
    said: dict[str, str] = {}
    for method in METHODS:
        try:
            explanation = explainer.explain(torch.zeros(9, 9, 3, dtype=torch.uint8), method)
            said[method] = explanation.prediction.label
        except WhyformerError as error:
            said[method] = f"refused: {error}"
    return {
        "distance": float((trace.logits - stock).abs().max()),
        "best": LABELS[int(stock[0].argmax())],
        "layers": len(layers.maps) if isinstance(layers, Layers) else str(layers),
        "special": [n for n, free in enumerate(trace.patches.free) if not free],
        "grid": list(trace.patches.grid.shape),
        "read": trace.read_for()[0].nonzero().flatten().tolist() if isinstance(layers, Layers) else None,
        "said": said,
    }


def main() -> None:
    """Print the facts of every model."""
    warnings.simplefilter("ignore")
    make_importable()
    import timm
    import torch

    found = {}
    for name, sizes in MODELS.items():
        torch.manual_seed(7)
        model = timm.create_model(name, pretrained=False, num_classes=len(LABELS), **sizes).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.25)
        found[name] = facts(model)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
