"""Coordinators: pure machines that take facts and `now_ms` and return decisions, and a runtime that waits."""
