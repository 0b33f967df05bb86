"""The API of the console answers as its OpenAPI file says: to what is right, and to whatever is sent.

Examples are the same in each run, and bounded. Streams do not end, so they are tested where their subject is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.conformance.conftest import RunningBroker
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.console.openapi import describe
from tidelog.broker.console.route import ApiRoute
from tidelog.broker.console.routes import ROUTES
from tidelog.client import Consumer, Producer

CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ROUTES_THAT_END: Final = [route for route in ROUTES if not route.stream]
SCHEMA: Final = schemathesis.openapi.from_dict(describe(ROUTES_THAT_END, "0"))
MOST_URL_CHARACTERS: Final = 8_000
"""A longer one gets the answer of the HTTP server itself."""
MOST_PARTITIONS: Final = 3
"""Examples ask for up to what the protocol allows, which takes long."""
NAMES: Final[dict[str, Any]] = {
    "topic": "orders",
    "partition": 0,
    "partitions": "0",
    "group_id": "readers",
    "transactional_id": "payments",
    "offset": 0,
    "to": "earliest",
    "to_topic": "orders",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with a record, a group, and a transaction that ended."""
    running = RunningBroker(
        tmp_path_factory.mktemp("broker"), group_initial_rebalance_delay_ms=0, faults_enable=True
    )
    running.run(_fill(running.address))
    yield running
    running.stop()


async def _fill(address: str) -> None:
    async with (
        Producer(bootstrap_servers=address, transactional_id="payments") as producer,
        Consumer(
            "orders", bootstrap_servers=address, group_id="readers", auto_offset_reset="earliest"
        ) as consumer,
    ):
        async with producer.transaction():
            await producer.send("orders", b"<value>", key=b"\x00", headers=[("h", b"\xff")])
        await consumer.getone()
        await consumer.commit()


def called(site: RunningBroker, case: schemathesis.Case) -> Any:
    """The answer to a request, which is as the file says."""
    response = case.call(base_url=f"http://127.0.0.1:{site.http_port}", timeout=DEADLINE_SECONDS)
    if len(response.request.url or "") <= MOST_URL_CHARACTERS:
        case.validate_response(response, checks=CHECKS)
    return response


def name(route: ApiRoute) -> str:
    return f"{route.method} {route.path}"


# A subject needs a registry: test_console_records has one.
@pytest.mark.parametrize(
    "route",
    [each for each in ROUTES_THAT_END if not each.is_change and each.path != "/api/v1/registry/subject"],
    ids=name,
)
def test_an_answer_is_as_described(site: RunningBroker, route: ApiRoute) -> None:
    operation = SCHEMA[route.path][route.method]
    fields = route.parameters.__struct_fields__
    given = {name: value for name, value in NAMES.items() if name in fields}
    case = operation.Case(path_parameters={name: given.pop(name) for name in route.path_names}, query=given)
    assert called(site, case).status_code == 200


@pytest.mark.parametrize(
    ("mode", "route"),
    [
        (mode, route)
        for route in ROUTES_THAT_END
        for mode in GenerationMode
        # Names that a path may not have are seldom drawn, so others stand for these.
        if mode is GenerationMode.POSITIVE or set(route.parameters.__struct_fields__) - set(route.path_names)
    ],
    ids=lambda each: each.name.lower() if isinstance(each, GenerationMode) else name(each),
)
def test_whatever_is_sent_gets_an_answer_that_is_described(
    site: RunningBroker, mode: GenerationMode, route: ApiRoute
) -> None:
    operation = SCHEMA[route.path][route.method]

    @settings(
        max_examples=2,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_of_topic=st.booleans())
    def sent(case: schemathesis.Case, is_of_topic: bool) -> None:
        if is_of_topic and "topic" in route.path_names:
            case.path_parameters["topic"] = "orders"
        if isinstance(case.body, dict):
            for field in ("partitions", "count"):
                if isinstance(case.body.get(field), int):
                    case.body[field] = min(case.body[field], MOST_PARTITIONS)
        called(site, case)

    sent()
