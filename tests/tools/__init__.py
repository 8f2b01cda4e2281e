"""Programs that check the project and are no part of it: kills, fuzzing, screenshots, dvc.lock."""
