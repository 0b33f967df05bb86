"""Metrics and log events."""
