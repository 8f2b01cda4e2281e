"""Pictures: listed, decoded, drawn."""
