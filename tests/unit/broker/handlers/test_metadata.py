"""Metadata, ApiVersions, DescribeCluster: what is named, what is created on the way, what is never null."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.unit.broker.handlers.conftest import LISTENER, Asker
from tidelog.broker.cluster.catalog import NO_LEADER, BrokerRegistered, BrokerRegistration, Listener
from tidelog.broker.handlers.metadata import (
    MAX_CREATED_AT_ONCE,
    MAX_SOFTWARE_CHARACTERS,
    described_partition,
)
from tidelog.broker.security.authorizer import SUPPORTED_OPERATIONS
from tidelog.broker.served_apis import BETWEEN_BROKERS, SERVED_APIS
from tidelog.protocol.acls import ResourceType
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Awaitable[Asker]]
VERSIONS = range(13)


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_names_the_broker_by_the_listener_asked(asker: Asker, version: int) -> None:
    await asker.create("t", 2)
    answer = await asker.ask(ApiKey.METADATA, version, topics=named("t"))
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
        (1, LISTENER.host, LISTENER.port)
    ]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [(part.partition_index, part.leader_id) for part in topic.partitions] == [(0, 1), (1, 1)]
    assert all(list(part.replica_nodes) == list(part.isr_nodes) == [1] for part in topic.partitions)
    if version >= 2:
        assert answer.cluster_id == asker.services.catalog.cluster_id
    if version >= 10:
        assert topic.topic_id != UUID(int=0)


async def test_null_means_all_topics_and_an_empty_list_none(asker: Asker) -> None:
    await asker.create("a")
    await asker.create("b")
    assert [topic.name for topic in (await asker.ask(ApiKey.METADATA, 1, topics=None)).topics] == ["a", "b"]
    assert not (await asker.ask(ApiKey.METADATA, 1, topics=[])).topics


async def test_in_version_0_an_empty_list_means_all_topics(asker: Asker) -> None:
    await asker.create("a")
    assert [topic.name for topic in (await asker.ask(ApiKey.METADATA, 0, topics=[])).topics] == ["a"]


async def test_an_unknown_topic_is_created_when_client_and_broker_allow_it(open_asker: Open) -> None:
    asker = await open_asker(num_partitions=3)
    (topic,) = (
        await asker.ask(ApiKey.METADATA, 9, topics=named("new"), allow_auto_topic_creation=True)
    ).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 3)
    assert asker.services.catalog.topic("new") is not None


async def test_one_request_creates_a_bounded_number_of_topics(asker: Asker) -> None:
    names = [f"t{number}" for number in range(MAX_CREATED_AT_ONCE + 2)]
    answer = await asker.ask(ApiKey.METADATA, 9, topics=named(*names), allow_auto_topic_creation=True)
    codes = [topic.error_code for topic in answer.topics]
    assert codes == [0] * MAX_CREATED_AT_ONCE + [ErrorCode.LEADER_NOT_AVAILABLE] * 2
    again = await asker.ask(ApiKey.METADATA, 9, topics=named(*names), allow_auto_topic_creation=True)
    assert {topic.error_code for topic in again.topics} == {0}


@pytest.mark.parametrize(("broker_allows", "client_allows"), [(True, False), (False, True)])
async def test_an_unknown_topic_is_an_error_when_either_forbids_it(
    open_asker: Open, broker_allows: bool, client_allows: bool
) -> None:
    asker = await open_asker(auto_create_topics_enable=broker_allows)
    answer = await asker.ask(ApiKey.METADATA, 9, topics=named("new"), allow_auto_topic_creation=client_allows)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new")
    assert len(asker.services.catalog) == 0


@pytest.mark.parametrize("allowed", [True, False])
async def test_an_illegal_name_is_an_invalid_topic(asker: Asker, allowed: bool) -> None:
    answer = await asker.ask(ApiKey.METADATA, 9, topics=named("a b"), allow_auto_topic_creation=allowed)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", [None, ""])
async def test_a_topic_is_found_by_its_id_and_by_its_name_once(asker: Asker, name: str | None) -> None:
    await asker.create("t")
    held = asker.topic("t")
    # Java's admin names it "".
    answer = await asker.ask(ApiKey.METADATA, 12, topics=[{"name": name, "topic_id": held.topic_id}])
    assert [(topic.name, topic.topic_id) for topic in answer.topics] == [("t", held.topic_id)]
    assert len((await asker.ask(ApiKey.METADATA, 12, topics=named("t", "t"))).topics) == 1


@pytest.mark.parametrize("version", [10, 11, 12, 13])
async def test_an_unknown_id_has_an_empty_name_and_never_a_null_one(asker: Asker, version: int) -> None:
    unknown = uuid4()
    answer = await asker.ask(ApiKey.METADATA, version, topics=[{"name": None, "topic_id": unknown}])
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, "", unknown)


async def test_a_deleted_topics_id_is_unknown(asker: Asker) -> None:
    await asker.create("t")
    held = asker.topic("t")
    await asker.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "t"}])
    answer = await asker.ask(ApiKey.METADATA, 12, topics=[{"name": None, "topic_id": held.topic_id}])
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_topic_that_is_made_anew_with_fewer_partitions_meanwhile_has_no_leader_of_the_others(
    asker: Asker,
) -> None:
    await asker.create("t", 2)
    held = asker.topic("t")
    await asker.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "t"}])
    await asker.create("t", 1)
    described = described_partition(asker.services, held, 1)
    assert (described["error_code"], described["leader_id"]) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)


async def test_authorized_operations_are_returned_only_on_request(asker: Asker) -> None:
    await asker.create("t")
    plain = await asker.ask(ApiKey.METADATA, 10, topics=named("t"))
    assert plain.cluster_authorized_operations == NO_AUTHORIZED_OPERATIONS
    assert plain.topics[0].topic_authorized_operations == NO_AUTHORIZED_OPERATIONS
    asked = await asker.ask(
        ApiKey.METADATA,
        10,
        topics=named("t"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert asked.cluster_authorized_operations == SUPPORTED_OPERATIONS[ResourceType.CLUSTER]
    assert asked.topics[0].topic_authorized_operations == SUPPORTED_OPERATIONS[ResourceType.TOPIC]


async def test_an_offline_partition_has_no_leader(asker: Asker) -> None:
    await asker.create("t")
    asker.replica("t").fail(OSError("the disk is gone"))
    (topic,) = (await asker.ask(ApiKey.METADATA, 9, topics=named("t"))).topics
    (partition,) = topic.partitions
    assert (topic.error_code, partition.error_code) == (0, ErrorCode.LEADER_NOT_AVAILABLE)
    assert (partition.leader_id, list(partition.offline_replicas)) == (-1, [1])


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


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_describe_cluster_names_this_broker_as_controller(asker: Asker, version: int) -> None:
    answer = await asker.ask(
        ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=bool(version)
    )
    assert (answer.error_code, answer.controller_id) == (0, 1)
    assert [(broker.broker_id, broker.host, broker.port) for broker in answer.brokers] == [
        (1, LISTENER.host, LISTENER.port)
    ]
    assert answer.cluster_authorized_operations == (
        SUPPORTED_OPERATIONS[ResourceType.CLUSTER] if version else NO_AUTHORIZED_OPERATIONS
    )


async def test_the_controllers_endpoint_is_not_here(asker: Asker) -> None:
    answer = await asker.ask(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=2)
    assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_the_other_brokers_are_named_by_their_listeners_of_the_same_name(asker: Asker) -> None:
    others = [
        BrokerRegistration(2, (Listener("internal", "two.internal", 1), Listener(LISTENER.name, "two", 2))),
        BrokerRegistration(3, (Listener("internal", "three.internal", 3),)),
    ]
    for other in others:
        await asker.services.cluster.change(lambda _, other=other: BrokerRegistered(other))
    metadata = await asker.ask(ApiKey.METADATA, 9, topics=[])
    described = await asker.ask(ApiKey.DESCRIBE_CLUSTER, 0)
    reachable = [(1, LISTENER.host, LISTENER.port), (2, "two", 2)]
    assert [(broker.node_id, broker.host, broker.port) for broker in metadata.brokers] == reachable
    assert [(broker.broker_id, broker.host, broker.port) for broker in described.brokers] == reachable
