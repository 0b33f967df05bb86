"""Examples to copy and change. `python -m pipeline.examples.flights --help`; README.md says more."""
