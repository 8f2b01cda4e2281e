"""Images -> boxes and region features, in plain torch."""
