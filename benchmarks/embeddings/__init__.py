"""Embeddings: vectors normalised, the rate of a local model, memory over a million texts."""
