"""What a decision costs beyond the model that makes it. `python -m benchmarks.decisions` prints the figures."""
