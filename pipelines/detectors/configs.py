"""The bottom-up architecture as each code base sets it up, by name."""

from __future__ import annotations

from capgrade.pipelines.detectors.bottom_up import BottomUpConfig
from capgrade.pipelines.detectors.rpn import ProposalRule

CONFIGS = {
    "caffe": BottomUpConfig(),
    # configs/VG-Detection/faster_rcnn_R_101_C4_caffemaxpool.yaml and demo/detectron2_mscoco_proposal_maxnms.py
    "airsplay": BottomUpConfig(conventions="airsplay", proposals=ProposalRule(min_side=0.0, at_threshold=False)),
    # configs/COCO-Detection/faster_rcnn_R_101_C4_3x.yaml of detectron2, which has no attributes
    "detectron2": BottomUpConfig(
        n_classes=80,
        n_attributes=1,
        rpn_channels=1024,
        anchor_scales=(2, 4, 8, 16, 32),
        conventions="detectron2",
        proposals=ProposalRule(after_nms=1000, min_side=0.0, at_threshold=False),
        pooler="ROIAlignV2",
        res5_stride=2,
        res5_dilation=1,
        short_side=800,
        long_side=1333,
    ),
}
