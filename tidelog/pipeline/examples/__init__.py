"""Examples to copy and change. `python -m tidelog.pipeline.examples.flights --help`; README.md says more.

- `delays`, `flights`, `flights_plot`: from a topic of flights to a picture of their delays
"""
