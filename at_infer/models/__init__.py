"""Model files: type, metadata, and from their outputs to scores."""
