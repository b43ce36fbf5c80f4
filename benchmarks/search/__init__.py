"""How quickly what was embedded is found: `python -m benchmarks.search`."""
