"""The options of source and sink: Spark's texts in, checked values out.

- `common`: what the options of source and sink have in common
- `ignored`: warnings about what Spark's Kafka connector takes too, and what has no effect here
- `sink`: what a write has to do: options and columns in, or a refusal that says what is accepted
- `tables`: all options, and what becomes of the others of Spark's Kafka connector
- `source`: the source's options: Spark's texts in, `SourceOptions` out
"""
