"""The tables of the page on compatibility: Kafka's APIs and settings, and what Tidelog does with each.

`kafka.json` has what a running Kafka has (`tests/frameworks/kafka_reference.py`); what is here comes from the
code. Only the reasons for what is missing, and for clients' settings, are written here.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.broker.configuration.broker_settings import BROKER_SETTINGS
from tidelog.broker.configuration.coarse_settings import COARSE_SETTINGS
from tidelog.broker.configuration.kafka_settings import not_here
from tidelog.broker.configuration.resource_settings import CLIENT_METRICS, GROUPS
from tidelog.broker.configuration.topic_settings import TOPIC_SETTINGS
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.client.consumer.config import ConsumerConfig
from tidelog.client.producer.config import ProducerConfig
from tidelog.protocol.settings import Setting, as_text, settings_of
from tidelog.wire.cluster_config import ClusterConfig

KAFKA: dict[str, Any] = json.loads(Path(__file__).with_name("kafka.json").read_text())

_Reasons = Sequence[tuple[str, str]]
_STREAMS = "streams groups (KIP-1071) come later: Kafka Streams uses classic groups, which are served"
_TOKENS = "delegation tokens are decided against: OAUTHBEARER has tokens that expire"
_KRAFT = "KRaft's internals are decided against: brokers share their catalog in etcd, and need no controllers"
MISSING_APIS: _Reasons = (
    (r".*DelegationToken", _TOKENS),
    (r"Streams.*", _STREAMS),
    (
        r"Vote|(Begin|End)QuorumEpoch|AlterPartition|Envelope|Broker(Registration|Heartbeat)"
        r"|AllocateProducerIds|ControllerRegistration|(Add|Remove|Update)RaftVoter|UnregisterController",
        _KRAFT,
    ),
    (r"AssignReplicasToDirs", "several log folders are decided against: a broker has one disk, or a RAID"),
)
"""Why an API of Kafka is not served, by patterns of names; the first counts."""
NEWER_VERSIONS: Mapping[str, str] = {
    "ApiVersions": "5 lets a client check the cluster's id (KIP-1242); clients ask without it",
    "TxnOffsetCommit": "6 names topics by id (KIP-1319); clients name them",
    "DescribeLogDirs": "5 shows cordoned folders (KIP-1066), which need several folders",
    "DeleteGroups": "3 adds a text to the error code",
}
"""What Kafka's newest version of an API adds, where it is newer than the one here."""
GROUP_REASONS: _Reasons = (
    (r"streams\..*", _STREAMS),
    (r"share\.assign.*", "targets are computed with the heartbeat of a member"),
    (r"consumer\.assignment\.interval\.ms", "an assignment is computed with each change of the members"),
)
_FILES_IN_PEM = "keys and certificates are files in PEM"
CLIENT_ARGUMENTS: Mapping[str, str] = {
    "batch.size": "max_batch_size",
    "key.serializer": "key_serializer",
    "value.serializer": "value_serializer",
    "key.deserializer": "key_deserializer",
    "value.deserializer": "value_deserializer",
    "partitioner.class": "partitioner",
    "partitioner.ignore.keys": "partitioner",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "sasl.jaas.config": "sasl_plain_username, sasl_plain_password",
    "sasl.login.callback.handler.class": "sasl_oauth_token_provider",
    "ssl.endpoint.identification.algorithm": "ssl_check_hostname",
    "ssl.key.password": "ssl_password",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.cipher.suites": "ssl_context",
    "ssl.enabled.protocols": "ssl_context",
}
"""Kafka's setting of a client -> the argument for it, where its name is another one."""
CLIENT_REASONS: _Reasons = (
    (r"sasl\.kerberos\..*", "Kerberos is decided against: use SCRAM or OAUTHBEARER"),
    (
        r"sasl\.oauthbearer\.(jwks|expected|allow|clock|scope\.claim|sub\.claim|header).*",
        "the broker checks tokens; a client passes them on",
    ),
    (r"sasl\.oauthbearer\.(assertion|jwt)\..*", "give a sasl_oauth_token_provider, which may ask in any way"),
    (
        r"sasl\.login\..*",
        "a token is asked for again before it expires; other ways: sasl_oauth_token_provider",
    ),
    (
        r"ssl\.(keystore\.(key|certificate\.chain)|truststore\.certificates)",
        f"{_FILES_IN_PEM}: ssl_certfile, ssl_cafile",
    ),
    (r"ssl\.(key|trust)store\.(type|password)", f"{_FILES_IN_PEM}, of which only a key has a password"),
    (r"ssl\..*", "give an ssl_context, which has Python's settings of TLS"),
    (
        r"interceptor\.classes|metric\.reporters|config\.providers|security\.providers|sasl\.client\..*",
        "no class of Java can be loaded",
    ),
    (r"metrics\..*", "the client's counters have no windows"),
    (r"enable\.metrics\.push", "an administrator has no metrics"),
    (r"(send|receive)\.buffer\.bytes", "the system chooses it"),
    (r"client\.dns\.lookup|bootstrap\.resolve\.timeout\.ms", "each address of a host is tried"),
    (r"socket\.connection\.setup\.timeout\.max\.ms", "connect_timeout_ms does not grow"),
    (r"retries", "delivery_timeout_ms limits retries of records, request_timeout_ms those of requests"),
    (r"max\.block\.ms|default\.api\.timeout\.ms", "use asyncio.timeout around the call"),
    (r"connections\.max\.idle\.ms", "idle connections stay open"),
    (r"allow\.auto\.create\.topics", "a consumer creates no topic"),
    (r"exclude\.internal\.topics", "a pattern matches no internal topic; one may be named"),
    (r"compression\..*\.level", "each codec has its usual level"),
    (r"partitioner\..*", "records without a key fill one batch after the other; or give a partitioner"),
    (r"client\.rack", "only consumers choose a replica by rack"),
    (r"metadata\.max\.idle\.ms", "topics stay known until the producer is closed"),
    (
        r"metadata\.(recovery\.rebootstrap|cluster\.check)\..*",
        "metadata_recovery_strategy has no further settings",
    ),
    (r"buffer\.memory\..*", "memory is counted, not reserved"),
    (r"share\..*", "the client has no share consumer"),
    (r"internal\..*", "it is internal to Kafka's client"),
    (r"bootstrap\.controllers", "there are no controllers"),
)
"""Why a client here has no such argument, by patterns of names; the first counts."""
DECIDED_AGAINST = (
    ("KRaft's controllers and their log", _KRAFT),
    (
        "delegation tokens",
        "OAUTHBEARER has tokens that expire, from the identity provider that a company has",
    ),
    (
        "several log folders of a broker",
        "each would be another failure to survive; several brokers survive it",
    ),
    ("Kerberos (GSSAPI)", "SCRAM, OAUTHBEARER and certificates need no further server"),
    ("classes of Java in the broker", "the broker is no Java program; its settings have the usual cases"),
    ("a JMX port", "all metrics are on the HTTP port for Prometheus"),
)
LATER = (("streams groups (KIP-1071)", "Kafka Streams runs with classic groups, which are served"),)


class Row(NamedTuple):
    """A setting of Kafka here: `state` is honoured, without effect or refused; `note` says more."""

    name: str
    state: str
    note: str


def apis() -> list[tuple[str, ...]]:
    """Number, name, versions of Kafka, versions here, note."""
    rows = []
    for each in KAFKA["apis"]:
        own = SERVED_APIS.get(each["key"])
        here = "" if own is None else _range(own.advertised_first, own.last)
        note = "" if not each["only_controllers"] else "served by controllers only"
        if own is None:
            note = reason(each["name"], MISSING_APIS)
        elif own.last < each["last"]:
            note = NEWER_VERSIONS[each["name"]]
        rows.append((str(each["key"]), each["name"], _range(each["first"], each["last"]), here, note))
    return rows


def _range(first: int, last: int) -> str:
    return f"{first}-{last}" if first < last else str(first)


def reason(name: str, reasons: _Reasons) -> str:
    """Raises LookupError without one."""
    found = next((text for pattern, text in reasons if re.fullmatch(pattern, name)), None)
    if found is None:
        raise LookupError(f"docs/compatibility.py has no reason why {name} is not here")
    return found


def broker_settings() -> list[Row]:
    rows = []
    for name, default in KAFKA["settings"]["broker"].items():
        own, coarse, refused = BROKER_SETTINGS.get(name), COARSE_SETTINGS.get(name), not_here(name)
        if own is not None:
            rows.append(_own(own, default))
        elif coarse is not None:
            rows.append(Row(name, "honoured", f"shown as {coarse.stands_for}"))
        elif refused is None:
            raise LookupError(f"broker/configuration/kafka_settings.py has no reason why {name} is not here")
        else:
            rows.append(Row(name, "refused", f"{refused.reason}: {refused.instead}".removesuffix(": ")))
    return rows


def topic_settings() -> list[Row]:
    return [_own(TOPIC_SETTINGS[name], default) for name, default in KAFKA["settings"]["topic"].items()]


def _own(setting: Setting, kafkas_default: str | None) -> Row:
    topics = TOPIC_SETTINGS.get(setting.extras.get("topic_setting", ""), setting)
    why = topics.extras.get("without_effect", "")
    if setting.extras.get("has_no_effect"):
        why = "administration tools set it"
    default = "" if setting.default is None else as_text(setting.default)
    if why:
        return Row(setting.name, "without effect", why)
    differs = kafkas_default is not None and default.lower() != kafkas_default.lower()
    note = f"default {_shown(default)}, Kafka's {_shown(kafkas_default)}" if differs else ""
    return Row(setting.name, "honoured", note)


def _shown(value: str) -> str:
    return f"`{value}`" if value else "none"


def group_settings() -> list[Row]:
    return [
        Row(name, "honoured", f"else {of_broker}" if (of_broker := own.extras.get("broker_name")) else "")
        if (own := GROUPS.settings.get(name)) is not None
        else Row(name, "refused", reason(name, GROUP_REASONS))
        for name in KAFKA["settings"]["group"]
    ]


def client_metrics_settings() -> list[Row]:
    kafkas = KAFKA["settings"]["client-metrics"]
    return [_own(CLIENT_METRICS.settings[name], default) for name, default in kafkas.items()]


def client_settings() -> list[tuple[str, ...]]:
    """Setting, the clients of Kafka that have it, state, and the argument here or why there is none."""
    tables = {"producer": (ProducerConfig,), "consumer": (ConsumerConfig,), "admin": ()}
    rows: dict[tuple[str, str, str], list[str]] = {}
    for client, own in tables.items():
        named = {each.attribute for table in (*own, ClusterConfig) for each in settings_of(table)}
        for name in KAFKA["settings"][client]:
            argument = CLIENT_ARGUMENTS.get(name, name.replace(".", "_"))
            if argument in named or name in CLIENT_ARGUMENTS:
                row = (name, "honoured", f"`{argument}`")
            else:
                row = (name, "refused", reason(name, CLIENT_REASONS))
            rows.setdefault(row, []).append(client)
    return [(name, ", ".join(clients), *rest) for (name, *rest), clients in sorted(rows.items())]
