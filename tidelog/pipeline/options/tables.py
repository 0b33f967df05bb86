"""All options: those that source and sink have, and what becomes of the others of Spark's Kafka connector.

Owns the tables, by which options are parsed and documented. Each option of Spark's connector, and each
setting of Kafka's consumer and producer, is honoured (here, or as a setting of `ClusterConfig`), ignored, or
refused. It is ignored only if it cannot change which records are read or written, or who may see them. Tests
compare the tables with Kafka's own lists.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from tidelog.client.producer.config import CODECS, ProducerConfig
from tidelog.protocol.settings import default_of

AT_LEAST_ONCE: Final = "at_least_once"
BATCH_BYTES: Final = 512 * 1024
REQUEST_BYTES: Final = 16 * 1024 * 1024
DELIVERY_TIMEOUT_MS: Final[int] = default_of(ProducerConfig, "delivery_timeout_ms")


class Option(NamedTuple):
    """An option of Spark's: the text that holds where it is not given ("": none), and what it does."""

    default: str
    description: str


OptionTable: TypeAlias = Mapping[str, Option]


class Foreign(NamedTuple):
    """The other options of Spark's connector and of Kafka's clients, each with the reason.

    `ignored` cannot change a result. `refused` would, and the reason says what to do instead.
    """

    ignored: Mapping[str, str]
    refused: Mapping[str, str]


SOURCE_OPTIONS: Final[OptionTable] = {
    "subscribe": Option("", "Reads these topics, separated by commas."),
    "assign": Option("", 'Reads these partitions: `{"topic":[0,1]}`.'),
    "subscribePattern": Option("", "Reads the topics whose whole name fits this regular expression."),
    "startingOffsets": Option(
        "earliest",
        'Where to begin: earliest, latest, or `{"topic":{"0":23,"1":-2}}`. A stream begins at latest.',
    ),
    "endingOffsets": Option("latest", "Where to end, written as startingOffsets. A stream has no end."),
    "startingTimestamp": Option("", "Reads records of this time and later, in milliseconds since 1970."),
    "endingTimestamp": Option("", "Reads records before this time, in milliseconds since 1970."),
    "startingOffsetsByTimestamp": Option(
        "", 'A starting time for each partition: `{"topic":{"0":1700000000000}}`.'
    ),
    "endingOffsetsByTimestamp": Option("", "An ending time for each partition."),
    "startingOffsetsByTimestampStrategy": Option(
        "error", "What to do in a partition without a record of that time: error, or begin at latest."
    ),
    "isolation.level": Option(
        "read_uncommitted", "read_committed leaves out records of aborted transactions."
    ),
    "maxOffsetsPerTrigger": Option("", "Most records in a micro-batch of a stream."),
    "minOffsetsPerTrigger": Option("", "A micro-batch waits until this number of records can be read."),
    "maxTriggerDelay": Option(
        "15m", "Longest wait for minOffsetsPerTrigger: a number with the unit ms, s, m or h."
    ),
    "failOnDataLoss": Option(
        "true", "The read fails if offsets are missing from the log. false: it skips them and logs a warning."
    ),
    "includeHeaders": Option("true", "false leaves out the column headers."),
    "minPartitions": Option(
        "",
        "Reads with at least this number of tasks. By default a task reads a partition, or several with up to"
        " 20,000 records in all.",
    ),
    "maxRecordsPerPartition": Option(
        "", "Most records in one task. With read.path, a task is a piece of a segment file."
    ),
    "maxPartitionsPerTask": Option(
        "", "Most partitions of topics in one task. 1: a task reads one, as with Spark's own connector."
    ),
    "commit.group.id": Option(
        "",
        "A group in which a stream commits the offsets of each finished batch, so that tools show its lag."
        " The stream itself begins where its checkpoint says. The group must have no members.",
    ),
    "columns": Option(
        "", "Reads only these columns, for example `offset,value`. Spark does not push its own choice down."
    ),
    "read.path": Option(
        "",
        "Reads the segment files of these data folders, separated by commas, directly. Driver and executors"
        " must see the folders. Also give `bootstrap.servers` while the broker runs. Then records in "
        "none of the folders come from the broker.",
    ),
    "remote.storage.url": Option(
        "",
        "Reads old records of tiered topics from the object store itself: the brokers' setting of this name."
        " Driver and executors must be able to read it. Needs `bootstrap.servers`.",
    ),
    "remote.storage.endpoint": Option("", "As the brokers' setting of this name."),
    "remote.storage.region": Option("", "As the brokers' setting of this name."),
    "losses.path": Option(
        "", "A folder where the source writes which offsets it could not read, with `failOnDataLoss=false`."
    ),
}
"""The options of the source, beside those of the way to the cluster."""
SINK_OPTIONS: Final[OptionTable] = {
    "topic": Option("", "Topic to write to. It overrides the column topic."),
    "delivery": Option(AT_LEAST_ONCE, "at_least_once; exactly_once; or mirror: each row of a topic once."),
    "compression.type": Option("none", f"Compression of batches: {', '.join(CODECS)}."),
    "batch.size": Option(str(BATCH_BYTES), "Size of a batch before compression, in bytes."),
    "max.request.size": Option(
        str(REQUEST_BYTES), "Most bytes of a request, before compression. A larger record is refused."
    ),
    "delivery.timeout.ms": Option(
        str(DELIVERY_TIMEOUT_MS), "Time after which a record that is not acknowledged is given up."
    ),
    "exactly_once.name": Option(
        "", "With exactly_once: permanent name of this write. A stream has the id of its query by default."
    ),
    "exactly_once.batch": Option(
        "", "With exactly_once in a batch: its number. A number that was written before is not written again."
    ),
    "session.path": Option("", "With mirror: folder of its session. A stream keeps it in the checkpoint."),
    "mirror.plan": Option("", "With mirror: name of the change to the rows. Another name is another mirror."),
    "mirror.gaps": Option("refuse", "With mirror: `allow` where a filter removes rows."),
}
"""The options of the sink, beside those of the way to the cluster."""


def _named(names_of: Mapping[str, str]) -> dict[str, str]:
    """Reason by name, of names by reason."""
    return {name: reason for reason, names in names_of.items() for name in names.split()}


_OF_BOTH: Final = _named(
    {
        "each address of a host is tried": "client.dns.lookup bootstrap.resolve.timeout.ms",
        "idle connections are closed with the task, or after half a minute": "connections.max.idle.ms",
        "the wait does not grow": "socket.connection.setup.timeout.max.ms",
        "the system chooses it": "send.buffer.bytes receive.buffer.bytes",
        "the leader reads and writes": "client.rack",
        "metadata.recovery.strategy has no further settings": (
            "metadata.recovery.rebootstrap.trigger.ms metadata.cluster.check.enable"
        ),
        "tasks push no metrics": (
            "enable.metrics.push metric.reporters metrics.num.samples metrics.recording.level"
            " metrics.sample.window.ms"
        ),
        "it belongs to Kerberos, which sasl.mechanism refuses": (
            "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter"
            " sasl.kerberos.ticket.renew.window.factor"
        ),
        "a token is asked for again before it expires": (
            "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds"
            " sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor"
            " sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms"
        ),
        "the broker checks tokens": (
            "sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer"
            " sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience"
            " sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms"
            " sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
            " sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url"
            " sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name"
            " sasl.oauthbearer.sub.claim.name"
        ),
        "id and secret are always encoded, as RFC 6749 demands": "sasl.oauthbearer.header.urlencode",
        "it chooses among classes of Java": (
            "ssl.provider ssl.keymanager.algorithm ssl.trustmanager.algorithm"
            " ssl.secure.random.implementation"
        ),
    }
)
_REFUSED: Final = _named(
    {
        "no class of Java can be loaded": (
            "interceptor.classes security.providers sasl.client.callback.handler.class sasl.login.class"
            " ssl.engine.factory.class"
        ),
        "it is not read. Give the values themselves": "config.providers",
        "the system's OpenSSL decides, which accepts TLS 1.2 and newer": (
            "ssl.protocol ssl.enabled.protocols ssl.cipher.suites"
        ),
        "use sasl.oauthbearer.token.endpoint.url, which may be a file that contains a token": (
            "sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.assertion.algorithm"
            " sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds"
            " sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include"
            " sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub"
            " sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file"
            " sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file"
        ),
    }
)
_READING: Final = _named(
    {
        "a fetch is repeated until request.timeout.ms": (
            "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs"
        ),
        "the source is no member of a group": (
            "group.id groupIdPrefix group.instance.id group.protocol group.remote.assignor"
            " heartbeat.interval.ms session.timeout.ms max.poll.interval.ms partition.assignment.strategy"
        ),
        "the source commits nothing; with commit.group.id, after each batch": "auto.commit.interval.ms",
        "an answer has up to 2 MiB, and all of it is read": (
            "fetch.max.bytes fetch.max.wait.ms fetch.min.bytes max.partition.fetch.bytes max.poll.records"
        ),
        "each request waits for request.timeout.ms": "default.api.timeout.ms",
        "checksums are always compared": "check.crcs",
        "the source creates no topic": "allow.auto.create.topics",
        "the source is no share consumer": "share.acknowledgement.mode share.acquire.mode",
        "it is internal to Kafka's client": "internal.throw.on.fetch.stable.offset.unsupported",
    }
)
_REFUSED_IN_READING: Final = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": (
        "a stream has its offsets in its checkpoint. commit.group.id shows them to a group"
    ),
    "key.deserializer": "the column key is binary; convert it with DataFrame operations",
    "value.deserializer": "the column value is binary; convert it with DataFrame operations",
    "exclude.internal.topics": "subscribePattern matches no internal topic. Name it in subscribe",
}
_WRITING: Final = _named(
    {
        "each batch waits for all replicas": "acks",
        "each producer is idempotent": "enable.idempotence max.in.flight.requests.per.connection",
        "delivery.timeout.ms limits repetitions": "retries",
        "rows are sent in whole batches": "linger.ms max.block.ms buffer.memory",
        "memory is counted, not reserved": "buffer.memory.allocation.strategy",
        "each codec has its usual level": (
            "compression.gzip.level compression.lz4.level compression.zstd.level"
        ),
        "rows without a key fill one batch after the other": (
            "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms"
            " partitioner.rack.aware"
        ),
        "topics stay known until the task ends": "metadata.max.idle.ms",
        "delivery=exactly_once prepares its transactions, which no timeout ends": (
            "transaction.timeout.ms transaction.two.phase.commit.enable"
        ),
    }
)
_REFUSED_IN_WRITING: Final = {
    "key.serializer": "the column key is binary or string; convert it with DataFrame operations",
    "value.serializer": "the column value is binary or string; convert it with DataFrame operations",
    "partitioner.class": "write the partition into the column partition",
    "partitioner.ignore.keys": "write the partition into the column partition, or leave out the column key",
    "transactional.id": "use delivery=exactly_once, which gives each task a transactional id",
}


def _foreign(
    own: OptionTable, rows: Mapping[str, str], refused: Mapping[str, str], others: Iterable[str], why: str
) -> Foreign:
    """What one side does not have. Options of the other side are ignored, so that both can be given the
    same."""
    strange = {name: why for name in others if name not in own}
    return Foreign({**strange, **_OF_BOTH, **rows}, {**_REFUSED, **refused})


FOREIGN_TO_BATCH: Final = Foreign(
    dict.fromkeys(
        ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commit.group.id"),
        "a batch has no micro-batches",
    ),
    {},
)
"""Options of the source that only streams have."""
FOREIGN_TO_SOURCE: Final = _foreign(
    SOURCE_OPTIONS,
    _READING,
    _REFUSED_IN_READING,
    (*SINK_OPTIONS, *_WRITING, *_REFUSED_IN_WRITING),
    "it is for writing",
)
FOREIGN_TO_SINK: Final = _foreign(
    SINK_OPTIONS,
    _WRITING,
    _REFUSED_IN_WRITING,
    (*SOURCE_OPTIONS, *_READING, *_REFUSED_IN_READING),
    "it is for reading",
)
