"""Kafka's settings of a broker that this broker does not have: why, and what to set instead.

Owns the reasons, by patterns of names; the first that matches counts. A broker that is started or changed
with such a setting refuses it with its reason, and `docs/compatibility` shows all of them. Invariant: each
setting of Kafka 4.4 either exists here or has a reason.

Pure. Source: Kafka's KafkaConfig, AbstractKafkaConfig and the classes that they merge.
"""

import re
from typing import Final, NamedTuple


class NotHere(NamedTuple):
    """Why a setting of Kafka does not exist here; `instead` is the broker's setting to use, or empty."""

    reason: str
    instead: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: set {self.instead}" if self.instead else f"{self.reason}: remove it"


_NO_CONTROLLERS = NotHere("a broker here needs no controllers and no ZooKeeper")
_ONE_FOLDER = "a broker here has one data folder"
_NO_CLASSES = NotHere("a broker here cannot load a class of Java")
_NO_POOLS = "a process here serves its requests in one thread"
_NO_KERBEROS = NotHere("Kerberos is decided against: SCRAM and OAUTHBEARER need no other protocol")
_BY_SYSTEM = NotHere("the system chooses it")
_REMOTE_CLIENT = NotHere("segments are copied to an object store, which remote.storage.url names")
_PEM = "keys and certificates are files in PEM"
_REASONS: Final = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (
            r"process\.roles|controller\..+|metadata\..+|early\.start\.listeners|broker\.heartbeat\.interval\.ms"
            r"|initial\.broker\.registration\.timeout\.ms|.+\.controller\.protocol|zookeeper\..+",
            _NO_CONTROLLERS,
        ),
        (r"broker\.id", NotHere("Kafka 4 has it for older releases", "node.id")),
        (r"log\.dirs?|cordoned\.log\.dirs", NotHere(_ONE_FOLDER, "data.dir")),
        (
            r"log\.dir\.failure\.timeout\.ms|alter\.log\.dirs\..+|num\.replica\.alter\.log\.dirs\.threads",
            NotHere(f"{_ONE_FOLDER}, so no replica moves to another one"),
        ),
        (
            r"(group\.)?share\..+",
            NotHere("share groups (KIP-932) have one assignor and no threads of their own"),
        ),
        (
            r"group\.streams\..+",
            NotHere("streams groups (KIP-1071) come later; Kafka Streams uses classic groups"),
        ),
        (
            r"delegation\.token\..+",
            NotHere("delegation tokens are decided against: OAUTHBEARER has short tokens"),
        ),
        (r"sasl\.kerberos\..+", _NO_KERBEROS),
        (
            r"sasl\.login\..+|sasl\.client\..+|sasl\.oauthbearer\.(assertion|client|token)\..+"
            r"|sasl\.oauthbearer\.(scope|header\.urlencode|jwt\.retriever\.class)",
            NotHere("brokers authenticate to each other with a user and a password", "sasl.jaas.config"),
        ),
        (
            r"sasl\.oauthbearer\.(allow\..+|scope\.claim\.name)",
            NotHere("tokens are checked by their issuer and audience", "sasl.oauthbearer.expected.issuer"),
        ),
        (
            r"ssl\.(keystore|truststore)\.password",
            NotHere(f"{_PEM}, of which only a key has a password", "ssl.key.password"),
        ),
        (
            r"ssl\.endpoint\.identification\.algorithm",
            NotHere("brokers check each other's certificates as their CA and names say"),
        ),
        (r"ssl\.allow\..+", NotHere("a new certificate is taken whatever names it has")),
        (
            r"ssl\.(protocol|provider|secure\..+|keymanager\..+|trustmanager\..+)",
            NotHere("OpenSSL serves TLS", "ssl.enabled.protocols"),
        ),
        (
            r".+\.(class|class\.name|class\.path|impl\.prefix)|metric\.reporters|kafka\.metrics\..+"
            r"|config\.providers|security\.providers|group\.share\.assignors",
            _NO_CLASSES,
        ),
        (r"metrics\..+", NotHere("metrics are counters on the HTTP port, which have no windows")),
        (
            r"background\.threads|num\.(io|network)\.threads|group\.coordinator\.(background\.)?threads"
            r"|num\.recovery\.threads\.per\.data\.dir|log\.cleaner\.threads|num\.replica\.fetchers"
            r"|remote\.log\.manager\..+\.pool\.size",
            NotHere(_NO_POOLS, "processes"),
        ),
        (r".+\.purgatory\.purge\.interval\.requests", NotHere("a request that waits leaves nothing behind")),
        (
            r"queued\.max\.requests",
            NotHere("the limit is for each connection", "connection.queued.max.requests"),
        ),
        (r"queued\.max\.request\.bytes", NotHere("the limit counts answers too", "queued.max.bytes")),
        (
            r"socket\.(send|receive)\.buffer\.bytes|socket\.listen\.backlog\.size"
            r"|replica\.socket\.receive\.buffer\.bytes",
            _BY_SYSTEM,
        ),
        (
            r"replica\.socket\.timeout\.ms|socket\.connection\.setup\..+|request\.timeout\.ms",
            NotHere("how long brokers wait for each other is fixed"),
        ),
        (
            r"(offsets|transaction\.state\.log)\.load\.buffer\.size|offsets\.commit\.timeout\.ms"
            r"|group\.coordinator\.(append\.linger\.ms|cached\.buffer\.max\.bytes)"
            r"|log\.cleaner\.io\.buffer\..+",
            NotHere("this work has buffers and limits of its own"),
        ),
        (
            r"replica\.high\.watermark\.checkpoint\.interval\.ms"
            r"|log\.flush\.start\.offset\.checkpoint\.interval\.ms",
            NotHere("one interval is for all checkpoints", "log.flush.offset.checkpoint.interval.ms"),
        ),
        (
            r"controlled\.shutdown\.enable",
            NotHere("a broker that stops always waits for its replicas", "shutdown.timeout.ms"),
        ),
        (r"replication\.quota\..+", NotHere("the windows of a replication quota are fixed")),
        (r"offsets\.topic\.compression\.codec", NotHere("records of groups are not compressed")),
        (
            r"transaction\.state\.log\.min\.isr",
            NotHere("internal topics follow the common setting", "min.insync.replicas"),
        ),
        (
            r"transaction\.partition\.verification\.enable|add\.partitions\.to\.txn\..+",
            NotHere("transactions are always verified (KIP-890)"),
        ),
        (
            r"group\.consumer\.(min\.|max\.)?assignment\.interval\.ms",
            NotHere("a consumer group's assignment is computed with each change of its members"),
        ),
        (r"remote\.log\..+|remote\.list\..+|follower\.fetch\.last\.tiered\..+", _REMOTE_CLIENT),
    )
)


def not_here(name: str) -> NotHere | None:
    """Why this broker has no setting called `name`, which is none of its own; None for a name that Kafka
    does not have either."""
    return next((reason for pattern, reason in _REASONS if pattern.fullmatch(name)), None)
