"""Older versions: what they recorded is opened, and their brokers and clients run beside those of today."""
