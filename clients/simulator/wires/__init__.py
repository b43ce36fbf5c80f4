"""One file a wire: how it reads a request, refuses it, and writes an answer whole or as events."""
