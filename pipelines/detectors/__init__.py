"""Images -> boxes and region features, in plain torch."""

# A line on each detector, which reads without torch; `catalogue.py` makes them.
MEANINGS = {
    "scenes": "a small bottom-up model, whose weights come with capgrade, for generated scenes",
    "bottom_up": "the bottom-up attention model, of a published checkpoint (--weights)",
    "detectron2": "a model of detectron2's zoo, which is installed apart (regions.config)",
    "patches": "a grid of patches by a vision transformer of transformers (--model)",
}
