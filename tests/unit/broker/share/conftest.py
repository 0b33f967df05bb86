"""Handlers over real services, as the tests of `handlers` have them."""

from tests.unit.broker.handlers.conftest import asker, clock, open_asker

__all__ = ["asker", "clock", "open_asker"]
