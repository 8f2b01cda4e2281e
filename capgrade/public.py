"""The public names of the library, by the module that they are imported from.

Apps, research, the pages of docs and the examples use these alone, and so may other projects. All
else in this folder may change with any version. `capgrade.PUBLIC` says which of them `import
capgrade` gives by a short name. The product's other folders, schemas, pipelines and trainer, stand
beside the library; what they offer to other packages is what CONTRIBUTING.md tells.
"""

from __future__ import annotations

# Names with blanks between them. First what users type, which docs/api.md has.
USERS = {
    "capgrade.acceptance": "value_at",
    "capgrade.coco": "Bleu COCOEvalCap Cider Meteor PTBTokenizer Rouge Spice",
    "capgrade.evaluate_metric": "PATH",
    "capgrade.evaluation": "Draws evaluate evaluate_lists latex_table",
    "capgrade.exact_labels": "exact",
    "capgrade.grading": "grade",
    "capgrade.labels": "Labels",
    "capgrade.losses": (
        "GradedClipLoss GradedSigLipLoss InfoNCE LOSSES LossTerms Sam ScoredBatch Sigmoid"
        " SoftInfoNCE daa gather info_nce kendall kendall_windows ladder sam sigmoid smooth_ap"
        " soft_info_nce triplet triplet_sn"
    ),
    "capgrade.measures": (
        "Fitted MEASURES Measure MeasuresParams OfReferences Scorer choose names_of"
        " require_same_files"
    ),
    "capgrade.measures.frequencies": "Frequencies",
    "capgrade.metrics": (
        "Collapse Pairs Positives asp change_places coco_codes coherent_score collapse draw_pool"
        " estimate first_rank human_lists kendall_tau map_at_r ncs ndcg pmrp r_precision recall"
        " recall_share semantic_map semantic_recall"
    ),
    "capgrade.metrics.runs": "Qrels Run",
    "capgrade.reward": "CaptionReward CiderReward RewardFunction",
    "capgrade.scoring": "CaptionScores Scores score score_corpus",
    "capgrade.training": "train",
    "capgrade.with_sentence_transformers": (
        "GradedEvaluator GradedRankingLoss accepted_apart without_accepted"
    ),
}
# What apps, research and other packages build upon.
PARTS = {
    # What people say of pairs, and what a measure's value means by it.
    "capgrade.agreement.calibration": (
        "ACCEPTED Calibration SHIPPED calibration_errors calibration_file load_calibration meanings"
        " scale_of"
    ),
    "capgrade.agreement.coefficients": "taus",
    "capgrade.agreement.correlation": "judged_intervals judged_values",
    "capgrade.agreement.curve": "Curve FEWEST Scale fit require_enough",
    "capgrade.agreement.judgement_files": "judged_digest read_judgements read_raters reviewed",
    "capgrade.agreement.judgements": "Judgements",
    "capgrade.comparison": "Column",
    # Labels and lists of them in files.
    "capgrade.labels.hub": "download",
    "capgrade.labels.layout": "hub_name",
    "capgrade.labels.qrels": "write_qrels_tsv",
    "capgrade.labels.stored": "Sampled",
    "capgrade.lists": "HUNDREDTHS LIKELY LikelyList list_file read_list table_of_ids write_list",
    # Parts of measures and metrics.
    "capgrade.measures.bleu.fitted": "FittedBleu",
    "capgrade.measures.corpus": "Corpus pair_candidates",
    "capgrade.measures.embeddings": "EMBEDDINGS cache_name embed encode load_encoder store",
    "capgrade.measures.image_text.encoder": "encode_pictures load_dual_encoder",
    "capgrade.measures.on_device": "on_device",
    "capgrade.measures.refit": "params_of params_to_refit",
    "capgrade.measures.sbert.fitted": "FittedSbert",
    "capgrade.measures.sbert.shared": "SharedMap",
    "capgrade.metrics.base": "lists_of own_positives",
    "capgrade.metrics.catalogue": "with_measure",
    "capgrade.metrics.eccv": "are_coco_ids",
    "capgrade.metrics.formats": (
        "DIRECTIONS DIRECTION_WORDS JUDGED SUM_NAMES best_of format_value is_judged scale"
        " sort_key_of"
    ),
    "capgrade.metrics.judged_sample": "Estimate places_of query_values",
    "capgrade.metrics.pools": "best_cells draw_strata first_cells",
    "capgrade.metrics.uncertainty": "format_p pair_draws",
    "capgrade.result_tables": "LEVEL Result groups_of",
    # Parameters and stages.
    "capgrade.params": "Params load_params",
    "capgrade.stages": "STAGES",
    # Pictures, networks and devices.
    "capgrade.boxes": "clip_boxes decode_boxes encode_boxes iou nms_batch",
    "capgrade.cross_encoder": "load_cross_encoder score_pairs",
    "capgrade.devices": "autocast device_of precision_of",
    "capgrade.kernels": "id_keys",
    "capgrade.pictures.draw_regions": "draw_sheet",
    "capgrade.pictures.listing": "PICTURES_TABLE",
    "capgrade.pictures.lookup": "PictureLookup data_uri encode_image find_pictures",
    "capgrade.pictures.picture": "decode_image",
    "capgrade.pretrained": "EMBEDDED fingerprint load_weights quiet_loading",
}
NAMES = USERS | PARTS
