"""Reads of segments without a broker."""
