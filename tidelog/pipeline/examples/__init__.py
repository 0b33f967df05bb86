"""Examples to copy and change. `python -m tidelog.pipeline.examples.flights --help`; README.md says more."""
