"""Faults that users request for tests, where `faults.enable` is set."""
