"""What each of these tests begins with."""

import pytest

from tests.unit.broker.coordinator.consumer_groups.site import Site


@pytest.fixture
def site() -> Site:
    return Site()
