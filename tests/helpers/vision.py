"""Tiny random image classifiers of every architecture that transformers has, and images for them.

What `zoo` does not shrink by itself is set here by hand: depths and widths of stages, sizes of patches.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

SIDE = 32  # pixels of an image, in height and width
PATCH = {"patch_size": 8}
_STAGES = {"depths": [1, 1], "num_heads": [2, 4], "embed_dim": 16}
_SWIN = {**_STAGES, "patch_size": 4, "window_size": 4}
_TOWER = {"vision_config": {"image_size": SIDE, **PATCH}}
_CONVNEXT = {
    "hidden_sizes": [16, 32],
    "depths": [1, 1],
    "num_stages": 2,
    "patch_size": 4,
    "layer_scale_init_value": 0.5,
}
_PYRAMID = {
    "depths": [1, 1],
    "hidden_sizes": [16, 32],
    "num_attention_heads": [2, 4],
    "num_encoder_blocks": 2,
    "mlp_ratios": [2, 2],
    "strides": [4, 2],
}
_OVERLAPPING = {**_PYRAMID, "sr_ratios": [2, 1], "patch_sizes": [7, 3]}
_RESNET = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}

BY_HAND: dict[str, dict[str, Any]] = {
    "beit": {**PATCH, "use_relative_position_bias": True},
    "bit": {**_RESNET, "num_groups": 4},
    "clip": _TOWER,
    "convnext": _CONVNEXT,
    "convnextv2": _CONVNEXT,
    "cvt": {
        "embed_dim": [16, 32],
        "num_heads": [2, 4],
        "depth": [1, 2],
        "patch_sizes": [7, 3],
        "patch_stride": [4, 2],
        "patch_padding": [2, 1],
        "mlp_ratio": [2.0, 2.0],
        "attention_drop_rate": [0.0, 0.0],
        "drop_rate": [0.0, 0.0],
        "drop_path_rate": [0.0, 0.0],
        "qkv_bias": [True, True],
        "cls_token": [False, True],
        "qkv_projection_method": ["dw_bn", "dw_bn"],
        "kernel_qkv": [3, 3],
        "padding_kv": [1, 1],
        "stride_kv": [2, 2],
        "padding_q": [1, 1],
        "stride_q": [1, 1],
    },
    "data2vec-vision": {**PATCH, "use_relative_position_bias": True},
    "deit": PATCH,
    "dinat": {"depths": [1, 1], "num_heads": [2, 4], "embed_dim": 16, "dilations": [[1], [1]], "kernel_size": 3},
    "dinov2": PATCH,
    "dinov2_with_registers": PATCH,
    "donut-swin": _SWIN,
    "efficientnet": {
        "width_coefficient": 0.25,
        "depth_coefficient": 0.25,
        "hidden_dim": 320,
        "in_channels": [8, 8],
        "out_channels": [8, 16],
        "kernel_sizes": [3, 3],
        "strides": [1, 2],
        "num_block_repeats": [1, 1],
        "expand_ratios": [1, 2],
    },
    "focalnet": {
        "embed_dim": 16,
        "hidden_sizes": [16, 32],
        "depths": [1, 1],
        "focal_levels": [2, 2],
        "focal_windows": [3, 3],
    },
    "hgnet_v2": {
        "embedding_size": 16,
        "depths": [1, 1],
        "hidden_sizes": [16, 32],
        "stem_channels": [3, 8, 8],
        "stage_in_channels": [8, 16],
        "stage_mid_channels": [8, 8],
        "stage_out_channels": [16, 32],
        "stage_num_blocks": [1, 1],
        "stage_downsample": [False, True],
        "stage_downsample_strides": [2, 2],
        "stage_light_block": [False, True],
        "stage_kernel_size": [3, 5],
        "stage_numb_of_layers": [2, 2],
    },
    "hiera": {
        "image_size": [SIDE, SIDE],
        "patch_size": [4, 4],
        "patch_padding": [0, 0],
        "embed_dim": 16,
        "depths": [1, 1],
        "num_heads": [2, 4],
        "masked_unit_size": [2, 2],
        "masked_unit_attention": [True, False],
        "num_query_pool": 1,
    },
    "ijepa": PATCH,
    "imagegpt": {"n_embd": 32},
    "levit": {
        "patch_size": 16,
        "hidden_sizes": [16, 32, 48],
        "num_attention_heads": [2, 4, 6],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
        "mlp_ratio": [2, 2, 2],
        "attention_ratio": [2, 2, 2],
        "drop_path_rate": 0,
    },
    "metaclip_2": _TOWER,
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "mobilenet_v2": {"depth_multiplier": 0.25},
    "mobilevit": {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]},
    "mobilevitv2": {"width_multiplier": 0.25, "base_attn_unit_dims": [32, 48, 64]},
    "perceiver": {
        "num_blocks": 1,
        "num_latents": 8,
        "d_latents": 32,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 2,
        "num_cross_attention_heads": 1,
    },
    "poolformer": {
        "depths": [1, 1],
        "hidden_sizes": [16, 32],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "padding": [2, 1],
        "num_encoder_blocks": 2,
        "layer_scale_init_value": 0.5,
    },
    "pp_lcnet": {"scale": 0.25},
    "pvt": {**_PYRAMID, "patch_sizes": [4, 2], "sequence_reduction_ratios": [2, 1]},
    "pvt_v2": {**_OVERLAPPING, "num_hidden_layers": 2, "image_size": SIDE},
    "regnet": {**_RESNET, "groups_width": 8},
    "resnet": _RESNET,
    "segformer": _OVERLAPPING,
    "shieldgemma2": {"vision_config": {"image_size": SIDE, **PATCH}},
    "siglip": _TOWER,
    "siglip2": {"vision_config": {"num_patches": 16, **PATCH}},
    "swiftformer": {"depths": [1, 1, 1, 1], "embed_dims": [8, 16, 24, 32], "layer_scale_init_value": 0.5},
    "swin": _SWIN,
    "swinv2": {**_SWIN, "pretrained_window_sizes": [0, 0]},
    "textnet": {
        "stem_out_channels": 8,
        "image_size": [SIDE, SIDE],
        "conv_layer_kernel_sizes": [[[3, 3]], [[3, 3]], [[3, 1]], [[1, 3]]],
        "conv_layer_strides": [[2], [2], [1], [1]],
        "hidden_sizes": [8, 8, 16, 16, 32],
        "depths": [1, 1, 1, 1],
    },
    "vit": PATCH,
    "vit_msn": PATCH,
}
IMPOSSIBLE = {
    "shieldgemma2": "reads a text beside the image",
    "timm_wrapper": "needs the package timm",
}
_SIDES = {"mobilevitv2": 64}  # of those that make nothing of smaller images


def images(count: int = 3, height: int = SIDE, width: int = SIDE, seed: int = 0) -> Tensor:
    """Random images as models take them, [count, 3, height, width]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, height, width, generator=generator)


def batch(model: PreTrainedModel, count: int = 3, seed: int = 0) -> dict[str, Tensor]:
    """What an image classifier takes: images, in its own precision; patches, or colours as tokens, where it does."""
    config, dtype = model.config, next(model.parameters()).dtype
    side = _SIDES.get(
        config.model_type, getattr(config, "image_size", None) if config.model_type == "perceiver" else SIDE
    )
    pixels = images(count, side, side, seed).to(dtype)
    if config.model_type == "imagegpt":
        return {"input_ids": (pixels[:, 0, :3, :3].abs() * 20).long().flatten(1)}
    if config.model_type != "siglip2":
        return {"pixel_values": pixels}
    cells = SIDE // PATCH["patch_size"]
    patches = (
        pixels.unflatten(2, (cells, -1)).unflatten(4, (cells, -1)).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    )
    shapes = torch.tensor([[cells, cells]] * count)
    mask = torch.ones(patches.shape[:2], dtype=torch.long)
    return {"pixel_values": patches, "pixel_attention_mask": mask, "spatial_shapes": shapes}
