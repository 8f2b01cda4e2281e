"""Programs that check the project and are no part of it: screenshots, digests, a quick command."""
