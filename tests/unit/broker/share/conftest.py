"""Handlers over real services, as the tests of `handlers` have them."""

from tests.unit.broker.handlers.conftest import asker, open_asker

__all__ = ["asker", "open_asker"]
