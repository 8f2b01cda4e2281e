"""A training run, and the names of its files."""

MODEL, CONFIG, VOCABULARY = "model.safetensors", "config.json", "vocabulary.json"
STATE, SUMMARY = "state.pt", "summary.json"
STEPS, EPOCHS, UNFIT = "steps.csv", "epochs.csv", "unfit_batch.json"
