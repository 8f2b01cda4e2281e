"""A training run, and the names of its files."""

MODEL, CONFIG, VOCABULARY = "model.safetensors", "config.json", "vocabulary.json"
STATE, SUMMARY = "state.pt", "summary.json"
IMAGES = "images.txt"  # ids of the images that the run was trained on, one a line
STEPS, EPOCHS, UNFIT = "steps.csv", "epochs.csv", "unfit_batch.json"
