"""A broker that scripts ask: APIs of Kafka by their names, and what happens to the broker meanwhile.

A command with the name of an API asks it: `Metadata 9 topics: [{name: t}]`; then a version or a range of
them, and the request's fields as YAML. Below it stands the whole answer, without fields that have their
default. Answers of several versions that differ stand each below its versions. Numbers with names in Kafka
are written as names, an id as `<topic>`, other random ids as `<1>`, `<2>`; `x * 9` is a text of nine x, `%v`
the version.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from textwrap import indent
from typing import Any
from uuid import UUID

import yaml

from tests.message_texts import KEYS, ConfigResource, answer_text, request_values
from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.handlers.conftest import Asker, fetch_request
from tidelog.broker.cluster.catalog import BrokerRegistered, BrokerRegistration, Listener
from tidelog.broker.configuration.broker_settings import ConfigSource
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.configuration.topic_settings import ConfigType
from tidelog.broker.handlers.configs import ConfigOperation
from tidelog.broker.handlers.connection_state import Principal
from tidelog.broker.observability import log_events
from tidelog.broker.storage.log_types import READ_COMMITTED
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import ProduceRequest, TopicKey
from tidelog.protocol.records import RecordBatchBuilder, TransactionMarker, iter_batches
from tidelog.protocol.schema import ApiKey

_DEFAULT = ConfigSource.DEFAULT_CONFIG
_IS_ID = re.compile("[0-9a-f-]{36}")
_UUID = re.compile(r"(?!0{8}-)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SAME = re.compile(r"(\w)\1{199,}")

_SIGNS = {
    "=": ConfigOperation.SET,
    "+=": ConfigOperation.APPEND,
    "-=": ConfigOperation.SUBTRACT,
    "-": ConfigOperation.DELETE,
}
_CHANGE = re.compile(r"([^-=][^=]*?)([+-]?=)(.*)")
_SUPER_USERS = "super.users: 'User:admin; User:operator'"
_ACL = {
    "resource_type": "TOPIC",
    "resource_name": "t",
    "resource_pattern_type": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission_type": "ALLOW",
}
_ALL_ACLS = (
    "resource_type_filter: ANY, resource_name_filter: null, pattern_type_filter: ANY, "
    "principal_filter: null, host_filter: null, operation: ANY, permission_type: ANY"
)


class Site:
    def __init__(self, open_asker: Callable[..., Awaitable[Asker]]) -> None:
        self._open = open_asker
        self._settings: Mapping[str, Any] = {}
        self._ids: dict[str, str] = {}
        self._known_ids = 0
        self.asker: Asker

    def __getattr__(self, name: str) -> Callable[..., Awaitable[str]]:
        """The command that asks an API of this name."""
        key = KEYS[name]

        async def ask(versions: str, *words: str) -> str:
            first, _, last = versions.partition("-")
            # Ids that are new in the answers of several versions have the same numbers.
            self._known_ids = sum(name[1:-1].isdigit() for name in set(self._ids.values()))
            asked = range(int(first), int(last or first) + 1)
            answers = [(version, await self._asked(key, version, " ".join(words))) for version in asked]
            groups = [
                (answer, [str(version) for version, _ in group])
                for answer, group in groupby(answers, itemgetter(1))
            ]
            if len(groups) == 1:
                return str(groups[0][0])
            return "\n".join(
                f"{'-'.join(dict.fromkeys((group[0], group[-1])))}:\n{indent(answer, '  ')}"
                for answer, group in groups
            )

        return ask

    async def _asked(self, key: ApiKey, version: int, text: str) -> str:
        request = request_values(key, self._with_ids(text.replace("%v", str(version))))
        response = await self.asker.ask(key, version, **request)
        if key is ApiKey.CREATE_TOPICS:  # The settings that a topic does not have itself say nothing.
            for topic in response.topics:
                topic.configs[:] = (each for each in topic.configs if each.config_source != _DEFAULT)
        answer = self._without_ids(answer_text(key, response))
        answer = _SAME.sub(lambda found: f"{found[1]} * {len(found[0])}", answer)
        for word in re.findall(r"[\w-]*%v", text):
            answer = re.sub(rf"\b{word.replace('%v', str(version))}\b", word, answer)
        return answer

    def _with_ids(self, text: str) -> str:
        for topic in self.asker.services.catalog.topics():
            self._ids.setdefault(str(topic.topic_id), f"<{topic.name}>")
        for uuid, name in reversed(self._ids.items()):
            text = text.replace(name, uuid)
        return text

    def _without_ids(self, text: str) -> str:
        self._with_ids("")
        text = text.replace(self.asker.services.catalog.cluster_id, "<cluster>")
        new = (uuid for uuid in dict.fromkeys(_UUID.findall(text)) if uuid not in self._ids)
        self._ids |= {uuid: f"<{number}>" for number, uuid in enumerate(new, self._known_ids + 1)}
        return _UUID.sub(lambda found: self._ids[found[0]], text)

    async def open(self, *settings: str) -> None:
        """Start the broker on its folder, with these settings."""
        self._settings = {
            name.replace(".", "_"): value
            for name, value in (yaml.safe_load(f"{{{' '.join(settings)}}}") or {}).items()
        }
        self.asker = await self._open(**self._settings)

    async def open_secured(self, *settings: str) -> None:
        """Start a broker with ACLs, whose super users are admin and operator, with a topic `t`."""
        await self.open(f'authorizer.class.name: "{STANDARD_AUTHORIZER}", {_SUPER_USERS},', *settings)
        self.act_as("admin")
        await self.asker.create("t")

    async def restart(self) -> None:
        await self.asker.services.close()
        self.asker = await self._open(**self._settings)

    async def crash(self) -> None:
        await self.asker.services.close(clean=False)
        self.asker = await self._open(**self._settings)

    def act_as(self, name: str) -> None:
        """The principal of the following requests."""
        self.asker.connection.principal = Principal("User", name)

    def wait(self, milliseconds: str) -> None:
        self.asker.clock.now_ms += int(milliseconds)

    async def join(self, instance: str = "") -> None:
        """A member of the classic group `g` that leads it, and assigns `all` to itself."""
        asked = f"group_id: g, group_instance_id: {instance or 'null'}, session_timeout_ms: 10000, "
        asked += "rebalance_timeout_ms: 60000, protocol_type: consumer, "
        asked += "protocols: [{name: range, metadata: topics}]"
        answer = await self.JoinGroup("5", f'{asked}, member_id: ""')
        member = answer.split("member_id: ")[-1].split("\n")[0].split(",")[0].rstrip("}]")
        if answer.startswith("error_code: MEMBER_ID_REQUIRED"):
            await self.JoinGroup("5", f"{asked}, member_id: {member}")
        generation = f"group_id: g, generation_id: 1, member_id: {member}"
        answer = await self.SyncGroup(
            "5", f"{generation}, assignments: [{{member_id: {member}, assignment: all}}]"
        )
        assert "assignment: all" in answer, answer

    async def commit(self, group: str, topic: str, *offsets: str) -> None:
        """Commit these offsets of the partitions from 0 on."""
        partitions = ", ".join(
            f"{{partition_index: {index}, committed_offset: {offset}}}"
            for index, offset in enumerate(offsets)
        )
        answer = await self.OffsetCommit(
            "9", f"group_id: {group}, topics: [{{name: {topic}, partitions: [{partitions}]}}]"
        )
        assert "error_code" not in answer, answer

    async def commit_often(self, group: str, topic: str, count: str) -> None:
        for offset in range(int(count)):
            await self.commit(group, topic, str(offset))

    async def committed(self, group: str) -> str:
        """All that a group has committed, to a reader that wants what is stable."""
        asked = {"groups": [{"group_id": group, "topics": None}], "require_stable": True}
        (answer,) = (await self.asker.ask(ApiKey.OFFSET_FETCH, 9, **asked)).groups
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        return " ".join(
            f"{topic.name}-{part.partition_index}="
            + (ErrorCode(part.error_code).name if part.error_code else str(part.committed_offset))
            for topic in answer.topics
            for part in topic.partitions
        )

    async def begin(self, name: str) -> str:
        """A producer with this transactional id: `ID:EPOCH`."""
        await self.FindCoordinator("4", f"key_type: 1, coordinator_keys: [{name}]")
        asked = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        answer = await self.asker.ask(ApiKey.INIT_PRODUCER_ID, 5, **asked)
        return f"{answer.producer_id}:{answer.producer_epoch}"

    async def write_marker(self, topic: str, producer: str, outcome: str) -> None:
        """As a coordinator ends a transaction on partition 0."""
        producer_id, epoch = map(int, producer.split(":"))
        marker = TransactionMarker(producer_id, epoch, 0, outcome == "commit")
        await self.asker.replica(topic).append_marker(marker, self.asker.clock.now_ms)

    async def fill(self, topic: str) -> None:
        """A topic with offsets 0 to 4, whose timestamps are 0, 10, 40, 20 and 30 ms after the beginning."""
        await self.asker.create(topic)
        for later in (0, 10, 40, 20, 30):
            await self.produce(topic, f"at={later}")

    async def offset_at(self, topic: str, timestamp: str, *words: str) -> str:
        """The answer of ListOffsets for partition 0; words: `version=`, `committed`."""
        wanted = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": int(timestamp)}]}]
        version = int(next((word[8:] for word in words if word.startswith("version=")), 7))
        level = READ_COMMITTED if "committed" in words else 0
        asked = {"replica_id": -1, "isolation_level": level}
        answer = await self.asker.ask(ApiKey.LIST_OFFSETS, version, **asked, topics=wanted)
        (part,) = answer.topics[0].partitions
        if part.error_code:
            return ErrorCode(part.error_code).name
        return f"offset {part.offset}, timestamp {part.timestamp}, leader epoch {part.leader_epoch}"

    async def compact(self) -> None:
        services = self.asker.services
        await services.maintenance.checkpoint()
        for _ in range(2):
            await services.cleaner.clean_dirtiest()
            await services.maintenance.checkpoint()

    def is_small(self, topic: str, size_bytes: str) -> str:
        return str(self.asker.replica(topic).log.size_bytes < 2 * int(size_bytes))

    def make_folder(self, *words: str) -> None:
        (self.asker.services.config.data_dir / " ".join(words)).mkdir(parents=True)

    async def sweep(self) -> None:
        """Forget what has expired of groups."""
        await self.asker.services.groups.sweep()

    async def create(self, name: str, partitions: str = "1", *settings: str) -> None:
        configs = dict(each.split("=", 1) for each in settings)
        await self.asker.create(name, int(partitions), **configs)

    async def delete(self, name: str) -> None:
        """As an operator does."""
        topic = self.asker.topic(name)
        self._with_ids("")
        await self.asker.services.topics.delete(topic.topic_id)

    def fail(self, topic: str, partition: str = "0") -> None:
        """The disk of a partition is gone."""
        self.asker.replica(topic, int(partition)).fail(OSError("the disk is gone"))

    async def register(self, node_id: str, *listeners: str) -> None:
        """Another broker of the cluster, with listeners like `NAME://HOST:PORT`."""
        parts = (re.fullmatch(r"(\w+)://(.+):(\d+)", each) for each in listeners)
        other = BrokerRegistration(
            int(node_id), tuple(Listener(each[1], each[2], int(each[3])) for each in parts if each)
        )
        await self.asker.services.cluster.change(lambda _: BrokerRegistered(other))

    def set_leader_epoch(self, topic: str, epoch: str) -> None:
        self.asker.replica(topic).leader_epoch = int(epoch)

    async def set(self, kind: str, name: str, *changes: str) -> str:
        """IncrementalAlterConfigs. A change is `NAME=VALUE`, `NAME+=VALUE`, `NAME-=VALUE` or `-NAME`; the
        word `validate-only` validates them only."""
        return await self._altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, kind, name, changes)

    async def replace(self, kind: str, name: str, *changes: str) -> str:
        """AlterConfigs."""
        return await self._altered(ApiKey.ALTER_CONFIGS, 2, kind, name, changes)

    async def _altered(self, key: ApiKey, version: int, kind: str, name: str, changes: Sequence[str]) -> str:
        configs = []
        for change in (each for each in changes if each != "validate-only"):
            found = _CHANGE.fullmatch(change)
            setting, sign, value = found.groups() if found else (change[1:], "-", "null")
            configs.append(
                {
                    "name": setting,
                    "value": None if value == "null" else value,
                    "config_operation": _SIGNS[sign],
                }
            )
        resource = {"resource_type": _kind(kind), "resource_name": name.strip('"'), "configs": configs}
        if key == ApiKey.ALTER_CONFIGS:
            for config in configs:
                del config["config_operation"]
        answer = await self.asker.ask(
            key, version, resources=[resource], validate_only="validate-only" in changes
        )
        (response,) = answer.responses
        code = ErrorCode(response.error_code).name
        return f"{code}: {response.error_message}" if response.error_code else code

    async def describe(self, kind: str, name: str, *settings: str) -> str:
        """DescribeConfigs: value, source, and the synonyms in their order."""
        resource = {
            "resource_type": _kind(kind),
            "resource_name": name.strip('"'),
            "configuration_keys": settings,
        }
        answer = await self.asker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True)
        (result,) = answer.results
        if result.error_code:
            return f"{ErrorCode(result.error_code).name}: {result.error_message}"
        return "\n".join(
            f"{each.name}={each.value} {ConfigSource(each.config_source).name}"
            + f" {ConfigType(each.config_type).name}"
            + " read only" * each.read_only
            + " secret" * each.is_sensitive
            + "".join(
                f", {held.name}={held.value} {ConfigSource(held.source).name}" for held in each.synonyms
            )
            for each in result.configs
        )

    async def allow(self, user: str, operation: str, kind: str, name: str, pattern: str = "LITERAL") -> None:
        """Create an ACL, as a super user."""
        fields = f"operation: {operation}, resource_type: {kind}, resource_name: '{name}'"
        answer = await self.create_acl(
            f"{fields}, principal: 'User:{user}', resource_pattern_type: {pattern}"
        )
        assert answer == "results: [{error_message: null}]", answer

    async def create_acl(self, *words: str) -> str:
        """Create an ACL, as a super user; the words are the fields that differ from `READ TOPIC t`."""
        creation = {**_ACL, **(yaml.safe_load(f"{{{' '.join(words)}}}") or {})}
        return await self._as_admin(ApiKey.CREATE_ACLS, f"creations: [{json.dumps(creation)}]")

    async def acls(self, *words: str) -> str:
        """DescribeAcls, as a super user; the words are the fields of a filter that differ from all."""
        answer = await self._as_admin(ApiKey.DESCRIBE_ACLS, f"{_ALL_ACLS}, {' '.join(words)}")
        return answer.replace("error_message: null", "").strip(", ")

    async def _as_admin(self, key: ApiKey, text: str) -> str:
        before = self.asker.connection.principal
        self.act_as("admin")
        try:
            return await self._asked(key, 3, text)
        finally:
            self.asker.connection.principal = before

    def revision(self) -> str:
        """Of the catalog."""
        return str(self.asker.services.catalog.revision)

    def quotas_of(self, user: str) -> str:
        quotas = self.asker.services.quotas.of_clients
        return "none at all" if quotas.is_empty else str(quotas.buckets(user, "").produced_bytes is not None)

    def levels(self) -> str:
        """The loggers that have a level of their own."""
        return " ".join(f"{name}={level}" for name, level in sorted(log_events.own_levels().items()))

    def topics(self) -> str:
        return " ".join(
            f"{topic.name}:{len(topic.partitions)}" for topic in self.asker.services.catalog.topics()
        )

    def settings_of(self, name: str) -> str:
        """What is stored for a topic."""
        return " ".join(f"{key}={value}" for key, value in sorted(self.asker.topic(name).configs.items()))

    def stored_settings(self) -> str:
        """What is stored for brokers, groups and client metrics."""
        return "\n".join(
            f"{name or 'all'}: " + " ".join(f"{key}={value}" for key, value in sorted(configs.items()))
            for name, configs in sorted(self.asker.services.catalog.broker_configs.items())
        )

    def in_force(self, *names: str) -> str:
        config = self.asker.services.config
        return " ".join(f"{name}={getattr(config, name.replace('.', '_'))}" for name in names)

    def in_force_of(self, topic: str, *names: str) -> str:
        config = self.asker.replica(topic).log.config
        return " ".join(f"{name}={getattr(config, name.replace('.', '_'))}" for name in names)

    def log(self, *topics: str) -> str:
        """Where the logs of partition 0 begin and end."""
        logs = [self.asker.replica(topic).log for topic in topics]
        return " ".join(f"{log.start_offset}..{log.end_offset}" for log in logs)

    async def produce(self, topic: str, *words: str) -> str:
        """Words: `version=`, `acks=`, `partition=`, `size=`, `key=`, `codec=`, `at=MS` after the beginning,
        `transaction=ID`, `null` for no records, and `ID:EPOCH/SEQUENCE` of a producer."""
        options = dict(word.split("=") for word in words if "=" in word)
        producer = [tuple(map(int, re.split("[:/]", word))) for word in words if "/" in word]
        producer_id, epoch, sequence = producer[0] if producer else (-1, -1, -1)
        name = options.get("transaction")
        builder = RecordBatchBuilder()
        key = options["key"].encode() if "key" in options else None
        builder.append(NOW_MS + int(options.get("at", 0)), key, b"v" * int(options.get("size", 1)))
        batch = builder.build(
            Compression[options.get("codec", "none").upper()],
            producer_id,
            epoch,
            sequence,
            is_transactional=name is not None,
        )
        part = (int(options.get("partition", 0)), None if "null" in words else bytes(batch))
        request = ProduceRequest(
            None if name == "null" else name,
            int(options.get("acks", -1)),
            30_000,
            [(self._key(topic), [part])],
        )
        answer = self.asker.call(ApiKey.PRODUCE, int(options.get("version", 9)), request)
        ((_, (result,)),) = await answer if inspect.isawaitable(answer) else answer
        if result.error_code:
            return ErrorCode(result.error_code).name
        return str(result.base_offset)

    async def fetch(self, topic: str, offset: str, *words: str) -> str:
        """The offsets of the batches; words: `committed`, `partition=`, `version=`, and names of
        `fetch_request`."""
        options = {
            name.replace("-", "_"): int(value)
            for name, value in (word.split("=") for word in words if "=" in word)
        }
        partition, version = options.pop("partition", 0), options.pop("version", 11)
        level = READ_COMMITTED if "committed" in words else 0
        request = fetch_request((self._key(topic), partition, int(offset)), isolation_level=level, **options)
        answer = self.asker.call(ApiKey.FETCH, version, request)
        answer = await answer if inspect.isawaitable(answer) else answer
        ((_, (result,)),) = answer.topics
        if result.error_code:
            return ErrorCode(result.error_code).name
        parts = result.records or ()
        offsets = [str(header.base_offset) for part in parts for _, header in iter_batches(part)]
        ends = f"high watermark {result.high_watermark}, stable {result.last_stable_offset}"
        ends += f", start {result.log_start_offset}" * (result.log_start_offset != 0)
        ends += ", diverging: {} ends at {}".format(*result.diverging_epoch) * (
            result.diverging_epoch[0] >= 0
        )
        ends += "".join(f", {each} aborted from {first}" for each, first in result.aborted_transactions or ())
        return f"{' '.join(offsets) or 'nothing'} ({ends})"

    def _key(self, topic: str) -> TopicKey:
        """A name, or an id."""
        text = self._with_ids(topic)
        return UUID(text) if text != topic or _IS_ID.fullmatch(topic) else topic

    def name_id(self, topic: str, name: str) -> None:
        """Call the id of a topic `<NAME>`."""
        self._ids[str(self.asker.topic(topic).topic_id)] = f"<{name}>"

    async def ended(self, *names: str) -> str:
        """The states of these transactions, once their markers are written."""
        transactions = self.asker.services.transactions
        for name in names:
            while (await transactions.describe(name)).state.is_decided:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return " ".join([(await transactions.describe(name)).state.name for name in names])


def _kind(name: str) -> int:
    return int(name) if name.isdigit() else ConfigResource[name]
