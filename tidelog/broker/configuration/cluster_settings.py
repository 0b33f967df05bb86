"""The settings of the cluster's store: names, defaults and the meaning of each.

Owns `ClusterSettings`, a part of the table of a broker's settings (`broker_config`). Pure.
"""

import re
from dataclasses import dataclass
from typing import Final

from tidelog.protocol.settings import ConfigError, int32_setting, int64_setting
from tidelog.protocol.settings import setting as _setting

ETCD: Final = "etcd:"
UNIX: Final = "unix:"
_URL: Final = re.compile(r"https?://[^\s/@,]+")
_SELECTORS: Final = "org.apache.kafka.common.replica."
_RACK_AWARE: Final = "RackAwareReplicaSelector"


def _store(value: object) -> str:
    text = str(value)
    urls = text.removeprefix(ETCD).split(",")
    is_etcd = text.startswith(ETCD) and all(_URL.fullmatch(url.rstrip("/")) for url in urls)
    if isinstance(value, str) and (not text or is_etcd or (text.startswith(UNIX) and len(text) > len(UNIX))):
        return text
    raise ConfigError(
        f"cluster.store: expected nothing, unix:PATH, or etcd: and URLs such as etcd:https://a:2379,"
        f"https://b:2379 (user and password have settings of their own), got {value!r}"
    )


def _prefix(value: object) -> str:
    if isinstance(value, str) and value.strip("/"):
        return value
    raise ConfigError(f"cluster.store.prefix: expected the beginning of keys, such as tidelog, got {value!r}")


def _selector(value: object) -> str:
    name = str(value).removeprefix(_SELECTORS)
    if name not in ("", "LeaderSelector", _RACK_AWARE):
        raise ConfigError(f"replica.selector.class: expected {_RACK_AWARE}, or nothing, got {value!r}")
    return f"{_SELECTORS}{_RACK_AWARE}" if name == _RACK_AWARE else ""


def _incarnation(value: object) -> str:
    if isinstance(value, str) and (not value or re.fullmatch("[0-9a-f]{32}", value)):
        return value
    raise ConfigError(
        f"broker.lost.incarnation: expected the 32 characters that the refused start names, got {value!r}"
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ClusterSettings:
    """Part of `BrokerConfig`, which checks the values and has the generated methods."""

    cluster_store: str = _setting(
        "",
        "Where the catalog is kept. Empty: in the data folder, for one broker. For several brokers etcd: "
        "and the URLs of its members, such as etcd:https://a:2379,https://b:2379; or unix:PATH, a socket on "
        "which a process of this machine serves it.",
        read=_store,
    )
    cluster_store_prefix: str = _setting(
        "tidelog",
        "Beginning of all keys in etcd. Clusters that share an etcd need different ones.",
        read=_prefix,
    )
    cluster_store_user: str = _setting("", "User at etcd. Empty: no authentication.")
    cluster_store_password: str = _setting("", "Password of cluster.store.user.", secret=True)
    cluster_store_ssl_truststore_location: str = _setting(
        "", "PEM file with the CAs that sign etcd's certificates. Empty: those of the system."
    )
    cluster_store_ssl_keystore_location: str = _setting(
        "",
        "PEM file with a certificate for etcd and its private key, if etcd requires one. It does not "
        "identify a user: etcd's gateway needs a user and a password for that.",
    )
    broker_session_timeout_ms: int = int32_setting(
        9_000,
        "Time without a heartbeat after which the session of this broker ends. etcd counts whole seconds.",
        low=1_000,
    )
    replica_lag_time_max_ms: int = int32_setting(
        30_000,
        "Time after which a follower that lags behind its leader's log leaves the in-sync set.",
        low=1_000,
    )
    auto_leader_rebalance_enable: bool = _setting(
        True, "Whether the first replica of a partition becomes its leader again after its broker returns."
    )
    leader_imbalance_check_interval_seconds: int = int32_setting(
        300, "How often the controller checks which partitions are not led by their first replica."
    )
    leader_imbalance_per_broker_percentage: int = int32_setting(
        10,
        "Percentage of a broker's partitions that may have another leader before it leads them again.",
        low=0,
    )
    replica_fetch_max_bytes: int = int32_setting(
        4 << 20, "Largest answer to a follower per partition, in bytes; it has at least one batch.", low=0
    )
    replica_fetch_response_max_bytes: int = int32_setting(
        10 << 20, "Largest answer to a follower, in bytes; it has at least one batch.", low=0
    )
    replica_fetch_wait_max_ms: int = int32_setting(
        500, "How long a leader may delay its answer to a follower while it has no new records."
    )
    replica_fetch_min_bytes: int = int32_setting(1, "Bytes that a leader waits for before it answers.")
    replica_fetch_backoff_ms: int = int32_setting(
        1_000, "Longest time before a follower asks again after an error.", low=0
    )
    leader_replication_throttled_rate: int = int64_setting(
        2**63 - 1,
        "Bytes per second that this broker sends as a leader to followers that are not in sync, of the "
        "replicas that leader.replication.throttled.replicas of their topics names.",
        dynamic=True,
    )
    follower_replication_throttled_rate: int = int64_setting(
        2**63 - 1,
        "Bytes per second that this broker gets as a follower that is not in sync, of the replicas that "
        "follower.replication.throttled.replicas of their topics names.",
        dynamic=True,
    )
    broker_rack: str = _setting(
        "", "Location of this broker, such as an availability zone; clients see it. Empty: none."
    )
    replica_selector_class: str = _setting(
        "",
        "Which replica consumers with a client.rack read: RackAwareReplicaSelector for one in their "
        "rack. Empty: the leader.",
        read=_selector,
    )
    broker_lost_incarnation: str = _setting(
        "",
        "Gives up the records of a lost data folder: the incarnation that the refused start names. It "
        "applies to that one only, so it may stay set.",
        read=_incarnation,
    )
