"""Metadata, ApiVersions, DescribeCluster: what is named, what is created on the way, what is never null."""

from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker
from tidelog.broker.cluster.catalog import NO_LEADER
from tidelog.broker.handlers.metadata import (
    MAX_CREATED_AT_ONCE,
    MAX_SOFTWARE_CHARACTERS,
    described_partition,
)
from tidelog.broker.served_apis import BETWEEN_BROKERS, SERVED_APIS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


async def test_one_request_creates_a_bounded_number_of_topics(asker: Asker) -> None:
    names = [f"t{number}" for number in range(MAX_CREATED_AT_ONCE + 2)]
    answer = await asker.ask(ApiKey.METADATA, 9, topics=named(*names), allow_auto_topic_creation=True)
    codes = [topic.error_code for topic in answer.topics]
    assert codes == [0] * MAX_CREATED_AT_ONCE + [ErrorCode.LEADER_NOT_AVAILABLE] * 2
    again = await asker.ask(ApiKey.METADATA, 9, topics=named(*names), allow_auto_topic_creation=True)
    assert {topic.error_code for topic in again.topics} == {0}


async def test_a_topic_that_is_made_anew_with_fewer_partitions_meanwhile_has_no_leader_of_the_others(
    asker: Asker,
) -> None:
    await asker.create("t", 2)
    held = asker.topic("t")
    await asker.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "t"}])
    await asker.create("t", 1)
    described = described_partition(asker.services, held, 1)
    assert (described["error_code"], described["leader_id"]) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_lists_every_api_for_clients_and_those_of_sasl_as_kafka_does(
    asker: Asker, version: int
) -> None:
    answer = await asker.ask(ApiKey.API_VERSIONS, version)
    told = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    for_clients = SERVED_APIS.keys() - BETWEEN_BROKERS
    assert told == {key: (SERVED_APIS[key].advertised_first, SERVED_APIS[key].last) for key in for_clients}
    assert set(told) == asker.handlers.keys() - BETWEEN_BROKERS


async def test_what_the_client_calls_itself_is_kept_for_its_connection_and_not_much_of_it(
    asker: Asker,
) -> None:
    await asker.ask(ApiKey.API_VERSIONS, 2)
    assert asker.connection.client_software == ""
    named = {"client_software_name": "librdkafka", "client_software_version": "2.11.1"}
    await asker.ask(ApiKey.API_VERSIONS, 3, **named)
    assert asker.connection.client_software == "librdkafka 2.11.1"
    await asker.ask(ApiKey.API_VERSIONS, 3, client_software_name="n" * 30_000)
    assert asker.connection.client_software == "n" * MAX_SOFTWARE_CHARACTERS
