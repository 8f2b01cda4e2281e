"""Programs that check the project and are no part of it: kills, screenshots, dvc.lock."""
