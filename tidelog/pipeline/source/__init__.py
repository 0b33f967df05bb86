"""Reads, as batches and as streams."""
