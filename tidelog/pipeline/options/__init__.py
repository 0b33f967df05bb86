"""The options of source and sink: Spark's texts in, checked values out."""
