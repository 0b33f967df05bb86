"""The settings of a broker: names, defaults, bounds and the meaning of each.

Owns `BrokerConfig`. Outward names are Kafka's (`log.segment.bytes`), attributes the same with underscores.
Sources, strongest first: flags and `--set`, `KAFKA_LOG_SEGMENT_BYTES` and then `TIDELOG_LOG_SEGMENT_BYTES` in
the environment, a TOML file, defaults. Kafka's variable is stronger because the image sets some of Tidelog's.

Invariants: an instance holds only values that passed their checks, however it was made, and never changes.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.broker.configuration import settings
from tidelog.broker.configuration.address_overrides import connections_by_address
from tidelog.broker.configuration.cluster_settings import ETCD, ClusterSettings
from tidelog.broker.configuration.coarse_settings import COARSE_SETTINGS, in_milliseconds, source_of
from tidelog.broker.configuration.coordinator_settings import CoordinatorSettings
from tidelog.broker.configuration.initial_objects import initial_topics, initial_users
from tidelog.broker.configuration.kafka_variables import as_own, kafkas, without_effect
from tidelog.broker.configuration.listener_overrides import (
    is_override,
    is_variable,
    name_of,
    override_of,
    plain,
)
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.configuration.listeners import ListenerConfig, inter_broker_listener, listeners_of
from tidelog.broker.configuration.process_count import checked_processes
from tidelog.broker.configuration.remote_settings import RemoteSettings, check_remote_storage
from tidelog.broker.configuration.sasl_settings import MECHANISMS
from tidelog.broker.configuration.security_settings import NO_CLIENT_CERTIFICATE, SecuritySettings
from tidelog.broker.configuration.share_settings import ShareSettings
from tidelog.broker.configuration.topic_settings import (
    TOPIC_SETTINGS,
    check_compaction_lags,
    documentation_of,
)
from tidelog.broker.configuration.urls import url_of
from tidelog.broker.storage.producer_state import DEFAULT_RULES
from tidelog.protocol.settings import (
    ConfigError,
    Setting,
    as_text,
    int32_setting,
    int64_setting,
    settings_of,
    shown,
)
from tidelog.protocol.settings import setting as _setting

_INT = 2**31 - 1

HTTP_LISTENER = "HTTP"
"""What the HTTP port is called in names of settings for one listener."""

__all__ = ["BrokerConfig", "ConfigError", "DescribedSetting"]


class DescribedSetting(NamedTuple):
    """One line of `tidelog config`; values as text."""

    name: str
    value: str
    default: str
    source: str
    description: str


def _default_of(topic_setting: str) -> Any:
    """The broker setting that applies where a topic does not set `topic_setting`, declared like that one."""
    one = TOPIC_SETTINGS[topic_setting]
    return _setting(
        one.default,
        documentation_of(one),
        low=one.low,
        high=one.high,
        choices=one.choices,
        read=one.read,
        topic_setting=topic_setting,
        dynamic=True,
    )


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(SecuritySettings, CoordinatorSettings, ShareSettings, ClusterSettings, RemoteSettings):
    """All settings of one broker. The constructor takes attributes (`BrokerConfig(port=0)`) and raises
    ConfigError for a value out of bounds; `load` reads the outward sources."""

    metrics_max_offset_series: int = int32_setting(
        50_000,
        "Most series of committed offsets, lag and ends of partitions on /metrics. Above it, whole families "
        "are left out, those by group and partition first.",
        low=0,
        dynamic=True,
    )
    metrics_max_client_series: int = int32_setting(
        10_000,
        "Most series on /metrics that clients push (client telemetry). Further ones are left out.",
        low=0,
        dynamic=True,
    )
    telemetry_max_bytes: int = int32_setting(
        1 << 20, "Size of the largest push of a client's metrics, compressed and decompressed."
    )
    telemetry_otlp_endpoint: str = _setting(
        "",
        "Where to pass on what clients push: a URL that takes metrics by OTLP over HTTP, such as "
        "http://collector:4318/v1/metrics. Empty: nowhere.",
        read=url_of("telemetry.otlp.endpoint"),
    )
    data_dir: Path = _setting(
        Path("tidelog-data"), "Folder of logs and catalog. It is created if it is missing."
    )
    node_id: int = int32_setting(1, "Id of this broker in the cluster.", low=0)
    processes: str = _setting(
        "1",
        "Processes of this broker, or auto: one for each core. With more than one, each serves partitions of "
        "its own, see Several processes.",
        read=checked_processes,
    )
    cluster_id: str = _setting("", "Id of the cluster. Empty: generated once and kept in the data folder.")

    log_level: str = _setting(
        "INFO",
        "Lowest level of logged events. WARN: events that need attention. ERROR: failures.",
        choices=("INFO", "WARN", "ERROR"),
        dynamic=True,
    )

    num_partitions: int = _setting(
        1, "Partitions of a new topic, if its creator gives no number.", low=1, high=100_000, dynamic=True
    )
    default_replication_factor: int = _setting(
        1,
        "Replicas of a new topic, if its creator gives no number. One broker keeps one.",
        low=1,
        high=32767,
        dynamic=True,
    )
    topics: tuple[str, ...] = _setting(
        (),
        "Topics that are created at the start if they do not exist, each with its partitions and replicas if "
        "they are not the defaults: orders:3,clicks:12:2.",
        read=settings.list_for(initial_topics),
    )
    users: tuple[str, ...] = _setting(
        (),
        "Users with their passwords for SCRAM that are created at the start if they do not exist: "
        "alice:secret,bob:other. A password with a comma has to be in a list of a file.",
        secret=True,
        read=settings.list_for(initial_users),
    )
    auto_create_topics_enable: bool = _setting(
        True, "Create a missing topic when a client requests it and allows its creation.", dynamic=True
    )
    delete_topic_enable: bool = _setting(True, "Let clients delete topics.", dynamic=True)

    log_segment_bytes: int = _default_of("segment.bytes")
    log_segment_delete_delay_ms: int = _default_of("file.delete.delay.ms")
    log_roll_ms: int = _default_of("segment.ms")
    log_roll_jitter_ms: int = _default_of("segment.jitter.ms")
    log_preallocate: bool = _default_of("preallocate")
    log_local_retention_bytes: int = _default_of("local.retention.bytes")
    log_local_retention_ms: int = _default_of("local.retention.ms")
    log_remote_copy_lag_bytes: int = _default_of("remote.copy.lag.bytes")
    log_remote_copy_lag_ms: int = _default_of("remote.copy.lag.ms")
    log_retention_ms: int = _default_of("retention.ms")
    log_retention_bytes: int = _default_of("retention.bytes")
    log_retention_check_interval_ms: int = int64_setting(
        300_000, "Interval at which old segments are looked for and deleted."
    )
    log_flush_offset_checkpoint_interval_ms: int = int64_setting(
        60_000,
        "Interval at which indexes, snapshots and recovery points are written. After a crash, the start "
        "reads the log from there.",
    )
    acks_all_durable: bool = _default_of("acks.all.durable")
    log_flush_interval_messages: int = _default_of("flush.messages")
    log_flush_interval_ms: int = _default_of("flush.ms")
    log_index_interval_bytes: int = _default_of("index.interval.bytes")
    log_index_size_max_bytes: int = _default_of("segment.index.bytes")
    message_max_bytes: int = _default_of("max.message.bytes")
    log_message_timestamp_type: str = _default_of("message.timestamp.type")
    log_message_timestamp_before_max_ms: int = _default_of("message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = _default_of("message.timestamp.after.max.ms")
    log_cleanup_policy: tuple[str, ...] = _default_of("cleanup.policy")
    log_cleaner_enable: bool = _setting(
        True, "Compact topics with cleanup.policy=compact, also __consumer_offsets."
    )
    log_cleaner_backoff_ms: int = int64_setting(
        15_000, "Time until logs are checked again if none is dirty enough.", low=0, dynamic=True
    )
    log_cleaner_dedupe_buffer_size: int = int64_setting(
        128 << 20,
        "Most memory for the keys of a clean: 24 bytes each, at most 70 % full. A log with more keys takes "
        "several cleans.",
        low=1 << 20,
        dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = _setting(
        sys.float_info.max, "Most bytes that the cleaner reads and writes per second.", low=1024, dynamic=True
    )
    log_cleaner_delete_retention_ms: int = _default_of("delete.retention.ms")
    log_cleaner_min_compaction_lag_ms: int = _default_of("min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = _default_of("max.compaction.lag.ms")
    log_cleaner_min_cleanable_ratio: float = _default_of("min.cleanable.dirty.ratio")
    compression_type: str = _default_of("compression.type")
    compression_gzip_level: int = _default_of("compression.gzip.level")
    compression_lz4_level: int = _default_of("compression.lz4.level")
    compression_zstd_level: int = _default_of("compression.zstd.level")
    max_decompressed_message_bytes: int = _default_of("max.decompressed.message.bytes")
    min_insync_replicas: int = _default_of("min.insync.replicas")
    unclean_leader_election_enable: bool = _default_of("unclean.leader.election.enable")

    socket_request_max_bytes: int = int32_setting(100 << 20, "Size of the largest request.")
    max_request_partition_size_limit: int = int32_setting(
        2000, "Most partitions in one answer to DescribeTopicPartitions.", dynamic=True
    )
    max_connections: int = int32_setting(
        10_000, "Most connections at a time. Further ones are closed.", dynamic=True
    )
    max_connections_per_ip: int = int32_setting(
        _INT, "Most connections at a time from one address. Further ones are closed.", low=0, dynamic=True
    )
    max_connections_per_ip_overrides: tuple[str, ...] = _setting(
        (),
        "Most connections at a time of single addresses, in place of max.connections.per.ip: "
        "10.0.0.1:200,10.0.0.2:5.",
        read=settings.list_for(connections_by_address),
        dynamic=True,
    )
    max_connection_creation_rate: int = int32_setting(
        _INT, "Most new connections per second. Further ones wait until they are accepted.", dynamic=True
    )
    quota_window_num: int = int32_setting(
        11,
        "Windows over which the use of a quota is measured; a client may use all but one of them at once.",
        low=2,
    )
    quota_window_size_seconds: int = int32_setting(
        1, "Length of one window over which the use of a quota is measured."
    )
    controller_quota_window_num: int = int32_setting(
        11,
        "Windows over which the use of controller_mutation_rate is measured; a client may use all of them at "
        "once.",
    )
    controller_quota_window_size_seconds: int = int32_setting(
        1, "Length of one window over which the use of controller_mutation_rate is measured."
    )
    connections_max_idle_ms: int = int64_setting(
        600_000, "Time after which a connection without a request is closed. -1: never.", low=-1
    )
    connection_queued_max_requests: int = int32_setting(
        256, "Unanswered requests of one connection at which the broker stops reading from it."
    )
    connection_queued_max_bytes: int = int64_setting(
        64 << 20, "Bytes of unsent answers of one connection at which the broker stops reading from it."
    )

    queued_max_bytes: int = int64_setting(
        512 << 20,
        "Most memory of all connections together: requests that arrive or wait, answers that are not read "
        "yet, fetch sessions, decompressed batches. Above half of it, answers are smaller. Above it, "
        "the connection that uses the most is closed. A batch that decompresses to more than a quarter of "
        "it, or 100 MiB, is refused.",
    )

    producer_id_expiration_ms: int = int32_setting(
        DEFAULT_RULES.expiration_ms, "Idle time after which a partition forgets a producer.", dynamic=True
    )
    max_producer_ids_per_partition: int = int32_setting(
        DEFAULT_RULES.max_producers,
        "Most producers that a partition remembers. Above it, the one that was idle longest is forgotten.",
        dynamic=True,
    )
    producer_id_unknown_sequence: str = _setting(
        "reject" if DEFAULT_RULES.reject_unknown_sequence else "accept",
        "What to do with a later batch of a forgotten producer. reject: answer code 59. accept: store it, as "
        "Kafka does.",
        choices=("reject", "accept"),
        dynamic=True,
    )
    producer_duplicate_below_window: bool = _setting(
        DEFAULT_RULES.duplicate_below_window,
        "Answer DUPLICATE_SEQUENCE_NUMBER to duplicates older than five batches. false: answer code 45, as "
        "Kafka does.",
        dynamic=True,
    )

    fetch_max_bytes: int = int32_setting(57_671_680, "Size of the largest answer to a Fetch.", low=1024)
    fetch_max_wait_ms: int = int32_setting(
        300_000, "Longest time that a Fetch waits for data. A request cannot ask for more.", low=0
    )
    max_incremental_fetch_session_cache_slots: int = int32_setting(
        1000, "Most incremental fetch sessions. 0: none.", low=0
    )
    max_incremental_fetch_session_cache_partitions: int = int32_setting(
        200_000,
        "Most partitions of all incremental fetch sessions together. Each takes about 400 bytes, and all at "
        "most a quarter of queued.max.bytes. Further consumers are served without a session.",
        low=0,
    )
    shutdown_timeout_ms: int = int32_setting(
        10_000,
        "Time that a stop waits for requests in flight before it closes their connections. Before "
        "that, a broker waits up to this time for live replicas to catch up, if fewer than "
        "min.insync.replicas would be in sync without it.",
        low=0,
    )
    shutdown_linger_ms: int = int32_setting(
        1_000, "How long a broker that stops still sends clients to the new leaders of its partitions.", low=0
    )
    faults_enable: bool = _setting(
        False,
        "Let everyone who can connect to the HTTP port inject faults with `tidelog fault`. For tests only.",
    )

    listener_overrides: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Outward name of a setting for one listener (`listener_overrides.plain`) -> its value as given."""

    def __post_init__(self) -> None:
        for each in settings_of(BrokerConfig):
            given = getattr(self, each.attribute)
            if given is not each.default:
                value = settings.parse_setting(each, given, self.sources.get(each.attribute, ""))
                object.__setattr__(self, each.attribute, value)
        if not self.host:
            raise ConfigError("host: expected an address, such as 127.0.0.1 or 0.0.0.0, got an empty text")
        if self.queued_max_bytes < 2 * self.socket_request_max_bytes:
            raise ConfigError(
                f"queued.max.bytes: expected at least twice socket.request.max.bytes "
                f"({self.socket_request_max_bytes}), for one request to arrive while memory is short, "
                f"got {self.queued_max_bytes}"
            )
        check_compaction_lags(self.log_cleaner_min_compaction_lag_ms, self.log_cleaner_max_compaction_lag_ms)
        check_remote_storage(self.remote_log_storage_system_enable, self.remote_storage_url)
        self._check_within("group_consumer_{}session_timeout_ms")
        self._check_within("group_consumer_{}heartbeat_interval_ms")
        for name in (
            "{}session_timeout_ms",
            "{}heartbeat_interval_ms",
            "{}record_lock_duration_ms",
            "{}delivery_count_limit",
            "{}partition_max_record_locks",
        ):
            self._check_within(f"group_share_{name}")
        if not self.sasl_enabled_mechanisms:
            raise ConfigError(f"sasl.enabled.mechanisms must name one of {', '.join(MECHANISMS)} or more")
        if not self.group_consumer_assignors:
            raise ConfigError("group.consumer.assignors must have an assignor: uniform, range or both")
        # All raise ConfigError.
        _ = self.inter_broker_listener, self._by_mechanism, self.super_user_names

    def _check_within(self, setting: str) -> None:
        """Raise ConfigError unless the setting is within its own minimum and maximum."""
        least, value, most = (getattr(self, setting.format(bound)) for bound in ("min_", "", "max_"))
        if not least <= value <= most:
            name = setting.replace("_", ".")
            raise ConfigError(
                f"{name.format('')}: expected {least} to {most}, as {name.format('min.')} and "
                f"{name.format('max.')} say, got {value}"
            )

    @cached_property
    def listener_configs(self) -> tuple[ListenerConfig, ...]:
        """The listeners that the settings describe, at least one."""
        return listeners_of(self)

    @cached_property
    def inter_broker_listener(self) -> ListenerConfig:
        """The listener by which brokers reach each other: of each broker the one of this name."""
        return inter_broker_listener(self, self.listener_configs)

    @property
    def is_secured(self) -> bool:
        """Whether there is security: TLS or SASL on some listener, or an authorizer."""
        has_open_listeners = all(
            one.security_protocol is SecurityProtocol.PLAINTEXT for one in self.listener_configs
        )
        return bool(self.authorizer_class_name) or not has_open_listeners

    @property
    def has_open_store(self) -> bool:
        """Whether everyone who reaches etcd may change the catalog, although there is security."""
        is_open = self.cluster_store.startswith(ETCD) and "https:" not in self.cluster_store
        return self.is_secured and is_open and not self.cluster_store_password

    @cached_property
    def _by_mechanism(self) -> Mapping[tuple[str, str], BrokerConfig]:
        """Listener's name and mechanism -> the settings that hold for them; an empty mechanism is any that
        has none of its own. Raises ConfigError."""
        changed: dict[str, dict[str, object]] = {
            # Only its own setting makes clients of SASL present a certificate (KIP-684).
            one.name: {"ssl_client_auth": NO_CLIENT_CERTIFICATE}
            if one.security_protocol is SecurityProtocol.SASL_SSL
            else {}
            for one in self.listener_configs
        }
        changed.setdefault(HTTP_LISTENER, {})
        by_mechanism: dict[tuple[str, str], dict[str, object]] = {
            (name, ""): own for name, own in changed.items()
        }
        for name, value in self.listener_overrides.items():
            source = self.sources.get(name, "")
            listener, mechanism, each = override_of(name, tuple(changed), settings_of(BrokerConfig), source)
            own = by_mechanism.setdefault((listener, mechanism), {})
            own[each.attribute] = settings.parse_setting(each, value, source)
        held = {where: {**changed[where[0]], **own} for where, own in by_mechanism.items()}
        return {
            where: replace(self, listener_overrides={}, **values) if self._differs(values) else self  # type: ignore[arg-type]
            for where, values in held.items()
        }

    def _differs(self, values: Mapping[str, object]) -> bool:
        return any(getattr(self, attribute) != value for attribute, value in values.items())

    def of_listener(self, name: str, mechanism: str = "") -> BrokerConfig:
        """The settings that hold for the listener called `name`, with those that were set for it alone, or
        for this mechanism of it."""
        return self._by_mechanism.get((name, mechanism)) or self._by_mechanism[name, ""]

    @classmethod
    def load(
        cls,
        given: Mapping[str, object] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> BrokerConfig:
        """Settings from all sources. `given` has outward names, from flags; `file` is a TOML file.

        Without `environ` no variable is read. Raises ConfigError.
        """
        environ = environ or {}
        if file is None and environ.get(settings.CONFIG_FILE_VARIABLE):
            file = Path(environ[settings.CONFIG_FILE_VARIABLE])
        values: dict[str, object] = {}
        overrides: dict[str, object] = {}
        sources: dict[str, str] = {}

        def take(
            given: Mapping[str, object], place: str, place_of: Callable[[str], str] | None = None
        ) -> None:
            for name, value in in_milliseconds(given, place).items():
                source = source_of(name, given, place if place_of is None else place_of(name))
                if is_override(name):
                    overrides[plain(name)], sources[plain(name)] = value, source
                else:
                    attribute = _attribute(name, source)
                    values[attribute], sources[attribute] = value, source

        if file is not None:
            take(settings.read_toml(file), str(file))
        take(_of_variables(environ), "the environment", settings.variable_of)
        as_kafkas = _of_variables(as_own(environ))
        take(as_kafkas, "the environment", lambda name: kafkas(settings.variable_of(name)))
        take(given or {}, "the command line")
        return cls(**values, sources=sources, listener_overrides=overrides)  # type: ignore[arg-type]

    def with_settings(self, given: Mapping[str, object]) -> BrokerConfig:
        """A copy with settings changed by their outward names. Raises ConfigError."""
        changed = {_attribute(name, ""): value for name, value in given.items() if not is_override(name)}
        overrides = {plain(name): value for name, value in given.items() if is_override(name)}
        return replace(self, listener_overrides={**self.listener_overrides, **overrides}, **changed)  # type: ignore[arg-type]

    def with_ports(self, ports: Sequence[int]) -> BrokerConfig:
        """A copy whose listeners have these ports, in order: the ports that the system chose."""
        if not self.listeners:
            return self.with_settings(dict(zip(("port", "internal.port"), ports, strict=False)))
        moved = zip(self.listener_configs, ports, strict=True)
        return self.with_settings(
            {"listeners": [listener._replace(port=port).listened for listener, port in moved]}
        )

    def describe(self) -> list[DescribedSetting]:
        """Every setting in the order of declaration, then those of single listeners; secrets are hidden."""
        own = [
            DescribedSetting(
                each.name,
                shown(each, getattr(self, each.attribute)),
                as_text(each.default),
                self.sources.get(each.attribute, "default"),
                each.description,
            )
            for each in settings_of(BrokerConfig)
        ]
        for name, each in self.overridden().items():
            source = self.sources.get(name, "default")
            own.append(
                DescribedSetting(
                    name, shown(each, self.listener_overrides[name]), "", source, each.description
                )
            )
        return own

    def overridden(self) -> dict[str, Setting]:
        """Name of each override -> the setting that it replaces for a listener."""
        names = tuple(dict.fromkeys(name for name, _ in self._by_mechanism))
        return {
            name: override_of(name, names, settings_of(BrokerConfig)).setting
            for name in self.listener_overrides
        }


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables in the environment that look like settings but are not, each with what to do. They cause a
    warning, not a refusal, because Kubernetes sets such names for a service called tidelog."""
    known = _names_by_variable(environ).keys()
    mine = {name for name in environ if name.startswith(settings.ENVIRONMENT_PREFIX)}
    unknown = sorted(mine - known - {settings.CONFIG_FILE_VARIABLE, settings.BOOTSTRAP_SERVERS_VARIABLE})
    close = {name: difflib.get_close_matches(name, known, n=1, cutoff=0.8) for name in unknown}
    own = {
        name: f"did you mean {found[0]}?" if found else "`tidelog config` lists all"
        for name, found in close.items()
    }
    of_kafka = as_own(environ)
    return own | without_effect(of_kafka, _names_by_variable(of_kafka))


def _of_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Outward name of each setting that has a variable -> its text."""
    by_variable = _names_by_variable(environ)
    return {name: environ[variable] for variable, name in by_variable.items() if variable in environ}


def _names_by_variable(environ: Iterable[str]) -> dict[str, str]:
    """Variable of the environment -> the outward name of the setting; of those for one listener the ones in
    `environ`."""
    names = [each.name for each in settings_of(BrokerConfig)]
    of_listeners = {variable: name_of(variable) for variable in environ if is_variable(variable)}
    return {settings.variable_of(name): name for name in (*names, *COARSE_SETTINGS)} | of_listeners


def _attribute(name: str, source: str) -> str:
    by_name = {each.name: each.attribute for each in settings_of(BrokerConfig)}
    attribute = by_name.get(name.strip().replace("_", "."))
    if attribute is None:
        raise settings.unknown_setting(name, by_name, source)
    return attribute
