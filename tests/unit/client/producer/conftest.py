"""What each of these tests begins with."""

import pytest

from tests.unit.client.producer.lab import Lab


@pytest.fixture
def lab() -> Lab:
    return Lab()
