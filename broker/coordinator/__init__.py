"""Coordinators as pure machines: they take facts and `now_ms` and return decisions; shells do the waiting."""
