"""Fixtures for tests against Kafka: `tidelog_broker` and `tidelog_topic`, with no container.

Owns the fixtures and the `tidelog` marker. pytest loads it through the entry point `tidelog` wherever the
package is installed, so its import must be cheap: the first test that uses a broker imports it.

Project-wide settings: override `tidelog_settings` in a conftest. For one test:
`@pytest.mark.tidelog(settings={"log.segment.bytes": 65536}, partitions=3)`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.broker.testing.embedded import ThreadedBroker

_MARKER = "tidelog"
_KEYWORDS = {"settings", "partitions"}
_NOT_IN_A_TOPIC = re.compile(r"[^a-zA-Z0-9._-]+")
_LONGEST_NAME = 200


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_MARKER}(settings=, partitions=): the broker and the topic that Tidelog's fixtures give"
    )


def _marked(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The keywords of the nearest marker. Raises pytest.UsageError for an unknown keyword."""
    marker = request.node.get_closest_marker(_MARKER)
    if marker is None:
        return {}
    if marker.args or marker.kwargs.keys() - _KEYWORDS:
        raise pytest.UsageError(f"@pytest.mark.{_MARKER} takes the keywords settings and partitions only")
    return dict(marker.kwargs)


@pytest.fixture(scope="session")
def tidelog_settings() -> dict[str, Any]:
    """Settings of every broker that the fixtures start, by Kafka's names; override it to change them."""
    return {}


@pytest.fixture
def tidelog_broker(
    request: pytest.FixtureRequest, tidelog_settings: Mapping[str, Any]
) -> Iterator[ThreadedBroker]:
    """A fresh, empty broker for this test: `bootstrap_servers`, `create_topic`, `restart`, `crash`,
    `order_fault`."""
    from tidelog.broker.testing.embedded import ThreadedBroker

    settings = {"faults.enable": True, **tidelog_settings, **_marked(request).get("settings", {})}
    with ThreadedBroker(settings=settings) as broker:
        yield broker


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest, tidelog_broker: ThreadedBroker) -> str:
    """The name of a topic made for this test on `tidelog_broker`, with one partition unless marked."""
    plain = _NOT_IN_A_TOPIC.sub("-", request.node.name)[:_LONGEST_NAME]
    return tidelog_broker.create_topic(
        f"{plain}-{uuid.uuid4().hex[:8]}", partitions=_marked(request).get("partitions", 1)
    )


@pytest.fixture(scope="session")
def tidelog_session_broker(tidelog_settings: Mapping[str, Any]) -> Iterator[ThreadedBroker]:
    """One broker for the whole run, for suites whose tests create topics of their own (`create_topic()`)."""
    from tidelog.broker.testing.embedded import ThreadedBroker

    with ThreadedBroker(settings=tidelog_settings) as broker:
        yield broker
