"""Models for detection and segmentation. All except SAM get targets and return a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.models.building import BLOCKS, IMAGE, NO_DROPOUT, WIDTH, Builder, Kind, Parts, hugging_face

_RESNET: dict[str, Any] = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 16, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
_DETR: dict[str, Any] = {
    "d_model": WIDTH,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_queries": 5,
    "dropout": 0.0,
    "num_labels": 3,
}
_STAGES: dict[str, Any] = {"out_features": ["stage1", "stage2", "stage3", "stage4"]}
_SWIN: dict[str, Any] = {
    "model_type": "swin",
    "image_size": 32,
    "embed_dim": 8,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 1, 2, 2],
    "window_size": 4,
    "drop_path_rate": 0.0,
    **_STAGES,
}


def _boxes() -> list[dict[str, torch.Tensor]]:
    """Return the targets of two images. Boxes have a center and a size, as shares of the image's size."""
    some = torch.tensor([[0.4, 0.5, 0.3, 0.4], [0.6, 0.4, 0.2, 0.3]])
    return [
        {"class_labels": torch.tensor([0, 2]), "boxes": some},
        {"class_labels": torch.tensor([1]), "boxes": some[:1]},
    ]


def _detector(kind: str, task: str = "ForObjectDetection", side: int = 64, **config: Any) -> Builder:
    def build() -> Parts:
        module = hugging_face(kind, task, config)
        return module.train(), (torch.randn(2, 3, side, side),), {"labels": _boxes()}

    return build


def _masks(kind: str, task: str, side: int = 32, **config: Any) -> Builder:
    """Return a builder of a model whose targets are regions, each with a mask and a class."""

    def build() -> Parts:
        module = hugging_face(kind, task, config)
        labels = [torch.tensor([0, 2]), torch.tensor([1])]
        masks = [(torch.rand(len(some), side, side) > 0.5).float() for some in labels]
        return module.train(), (torch.randn(2, 3, side, side),), {"mask_labels": masks, "class_labels": labels}

    return build


def _dense(kind: str, task: str, side: int = 32, **config: Any) -> Builder:
    """Return a builder of a model whose target is a label for each pixel."""

    def build() -> Parts:
        module = hugging_face(kind, task, config)
        return module, (torch.randn(2, 3, side, side),), {"labels": torch.randint(0, 3, (2, side, side))}

    return build


def _mask_in_training() -> Parts:
    module: Any = hugging_face(
        "Sam",
        "Model",
        {
            "vision_config": {
                **BLOCKS,
                "image_size": 32,
                "patch_size": 8,
                "output_channels": 16,
                "num_pos_feats": 8,
                "window_size": 2,
                "global_attn_indexes": [0],
                "mlp_dim": 48,
            },
            "prompt_encoder_config": {"hidden_size": 16, "image_size": 32, "patch_size": 8, "mask_input_channels": 4},
            "mask_decoder_config": {
                "hidden_size": 16,
                "mlp_dim": 32,
                "num_attention_heads": 2,
                "num_hidden_layers": 1,
                "iou_head_hidden_dim": 16,
            },
        },
    )
    return module, (torch.randn(2, 3, 32, 32),), {"input_points": torch.rand(2, 1, 2, 2) * 32}


class _WithLoss(nn.Module):
    """A detector of torchvision in training, which returns the sum of the detector's losses."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, images: list[torch.Tensor], targets: list[dict[str, torch.Tensor]]) -> torch.Tensor:
        losses = self.detector(images, targets)
        return torch.stack(list(losses.values())).sum()


def _of_torchvision(make: Callable[[Any], nn.Module], *, masks: bool = False) -> Builder:
    """Return a builder of a detector with a tiny backbone. The detector gets two images with different targets."""

    def build() -> Parts:
        import torchvision

        module = _WithLoss(make(torchvision)).train()
        images = [torch.rand(3, 64, 64), torch.rand(3, 64, 64)]
        corners = torch.tensor([[8.0, 8.0, 40.0, 40.0], [20.0, 10.0, 60.0, 50.0]])
        targets = [
            {"boxes": corners, "labels": torch.tensor([1, 2])},
            {"boxes": corners[:1], "labels": torch.tensor([1])},
        ]
        if masks:
            for target in targets:
                target["masks"] = (torch.rand(len(target["boxes"]), 64, 64) > 0.5).to(torch.uint8)
        return module, (images, targets), {}

    return build


class _TinyBackbone(nn.Module):
    def __init__(self, out_channels: int = 16) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, out_channels, 3, 4, 1), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.body(x)
        return result


_ANY_SIZE: dict[str, Any] = {"min_size": 64, "max_size": 64}


def _anchors(tv: Any) -> Any:
    return tv.models.detection.anchor_utils.AnchorGenerator(((16, 32),), ((0.5, 1.0),))


def _pooler(tv: Any, size: int) -> Any:
    return tv.ops.MultiScaleRoIAlign(featmap_names=["0"], output_size=size, sampling_ratio=2)


def _faster(tv: Any) -> nn.Module:
    given = {"rpn_anchor_generator": _anchors(tv), "box_roi_pool": _pooler(tv, 3), **_ANY_SIZE}
    module: nn.Module = tv.models.detection.FasterRCNN(
        _TinyBackbone(), 3, **given, rpn_pre_nms_top_n_train=20, rpn_post_nms_top_n_train=8
    )
    return module


def _mask(tv: Any) -> nn.Module:
    given = {
        "rpn_anchor_generator": _anchors(tv),
        "box_roi_pool": _pooler(tv, 3),
        "mask_roi_pool": _pooler(tv, 4),
        **_ANY_SIZE,
    }
    module: nn.Module = tv.models.detection.MaskRCNN(
        _TinyBackbone(), 3, **given, rpn_pre_nms_top_n_train=20, rpn_post_nms_top_n_train=8
    )
    return module


def _retina(tv: Any) -> nn.Module:
    module: nn.Module = tv.models.detection.RetinaNet(_TinyBackbone(), 3, anchor_generator=_anchors(tv), **_ANY_SIZE)
    return module


def _fcos(tv: Any) -> nn.Module:
    one = tv.models.detection.anchor_utils.AnchorGenerator(((16,),), ((1.0,),))
    module: nn.Module = tv.models.detection.FCOS(_TinyBackbone(32), 3, anchor_generator=one, **_ANY_SIZE)
    return module


def _ssd(tv: Any) -> nn.Module:
    boxes = tv.models.detection.anchor_utils.DefaultBoxGenerator([[2]])
    module: nn.Module = tv.models.detection.ssd.SSD(
        _TinyBackbone(),
        boxes,
        (64, 64),
        3,
        head=tv.models.detection.ssd.SSDHead([16], boxes.num_anchors_per_location(), 3),
    )
    return module


class _PixelLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(x)["out"], y)


def _deeplab() -> Parts:
    from torchvision.models.segmentation.deeplabv3 import DeepLabHead, DeepLabV3

    class Features(_TinyBackbone):
        def forward(self, x: torch.Tensor) -> Any:
            return {"out": super().forward(x)}

    return (
        _PixelLoss(DeepLabV3(Features(), DeepLabHead(16, 3))),
        (torch.randn(2, 3, 64, 64), torch.randint(0, 3, (2, 64, 64))),
        {},
    )


DETECTION: Kind = {
    "detr": _detector(
        "Detr", **_DETR, use_timm_backbone=False, backbone_config={**_RESNET, "out_features": ["stage4"]}
    ),
    "conditional_detr": _detector(
        "ConditionalDetr", **_DETR, use_timm_backbone=False, backbone_config={**_RESNET, "out_features": ["stage4"]}
    ),
    "table_transformer": _detector(
        "TableTransformer", **_DETR, use_timm_backbone=False, backbone_config={**_RESNET, "out_features": ["stage4"]}
    ),
    "deformable_detr": _detector(
        "DeformableDetr",
        **_DETR,
        use_timm_backbone=False,
        backbone_config={**_RESNET, "out_features": ["stage3", "stage4"]},
        num_feature_levels=2,
    ),
    "rt_detr": _detector(
        "RTDetr",
        backbone_config={
            "model_type": "rt_detr_resnet",
            "embedding_size": 8,
            "hidden_sizes": [8, 16, 16, 32],
            "depths": [1, 1, 1, 1],
            "layer_type": "basic",
            "out_features": ["stage2", "stage3", "stage4"],
        },
        encoder_in_channels=[16, 16, 32],
        feat_strides=[8, 16, 32],
        encoder_hidden_dim=WIDTH,
        encoder_ffn_dim=48,
        encoder_attention_heads=4,
        d_model=WIDTH,
        decoder_in_channels=[WIDTH] * 3,
        decoder_ffn_dim=48,
        decoder_layers=2,
        decoder_attention_heads=4,
        num_queries=5,
        num_denoising=4,
        num_labels=3,
        dropout=0.0,
        decoder_n_points=2,
    ),
    "yolos": _detector(
        "Yolos",
        side=32,
        **{**BLOCKS, **NO_DROPOUT},
        image_size=[32, 32],
        patch_size=8,
        num_detection_tokens=5,
        num_labels=3,
    ),
    "fasterrcnn": _of_torchvision(_faster),
    "maskrcnn": _of_torchvision(_mask, masks=True),
    "retinanet": _of_torchvision(_retina),
    "fcos": _of_torchvision(_fcos),
    "ssd": _of_torchvision(_ssd),
}

SEGMENTATION: Kind = {
    "maskformer": _masks(
        "MaskFormer",
        "ForInstanceSegmentation",
        32,
        backbone_config=_SWIN,
        fpn_feature_size=32,
        mask_feature_size=32,
        num_labels=3,
        decoder_config={"model_type": "detr", **_DETR},
    ),
    "mask2former": _masks(
        "Mask2Former",
        "ForUniversalSegmentation",
        32,
        backbone_config=_SWIN,
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=16,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=2,
        dim_feedforward=16,
        num_queries=5,
        train_num_points=16,
        num_labels=3,
        dropout=0.0,
    ),
    "upernet": _dense(
        "UperNet",
        "ForSemanticSegmentation",
        64,
        backbone_config={**_RESNET, **_STAGES},
        hidden_size=16,
        pool_scales=[1, 2],
        auxiliary_in_channels=16,
        auxiliary_channels=8,
        num_labels=3,
    ),
    "dpt": _dense(
        "DPT",
        "ForSemanticSegmentation",
        32,
        **BLOCKS | {"num_hidden_layers": 4},
        **NO_DROPOUT,
        image_size=32,
        patch_size=8,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        num_labels=3,
        semantic_classifier_dropout=0.0,
    ),
    "beit_segmentation": _dense(
        "Beit",
        "ForSemanticSegmentation",
        32,
        **{**IMAGE, "image_size": 32, "num_hidden_layers": 4},
        out_indices=[1, 2, 3, 4],
        pool_scales=[1, 2],
        drop_path_rate=0.0,
        auxiliary_channels=8,
    ),
    "mobilenet_v2_segmentation": _dense(
        "MobileNetV2",
        "ForSemanticSegmentation",
        32,
        image_size=32,
        depth_multiplier=0.25,
        num_labels=3,
        classifier_dropout_prob=0.0,
    ),
    "deeplab": _deeplab,
    "sam": _mask_in_training,
}
