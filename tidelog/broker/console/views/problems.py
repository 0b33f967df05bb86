"""What is wrong right now, in words, with the remedy.

Owns one rule for each problem. The alerts of `deploy/prometheus/rules.yml` are those that need no person who
looks. Invariants: pure; a problem has a stable name; a topic or a transactional id is in the text only if the
caller may see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Literal, TypedDict, get_args

from tidelog.broker.cluster.store import StoreView
from tidelog.broker.console.views.condition import Condition, Named
from tidelog.broker.observability.history import Lately
from tidelog.broker.storage.disk import HANDLES_ADVICE

Sees = Callable[[str], bool]
Severity = Literal["critical", "warning", "notice"]
_NAMED: Final = 5
_LITTLE_DISK: Final = 0.1
_FULL_DISK: Final = 0.01
_LITTLE_DISK_BYTES: Final = 10 << 30
_FULL_STORE: Final = 0.8
"""As the alert TidelogStoreNearlyFull."""
_CERTIFICATE_DAYS: Final = 14
_DAY_SECONDS: Final = 86_400
_PREPARED_SECONDS: Final = 3_600
"""As the alert TidelogTransactionWaits."""
_OUT_OF_ORDER_PER_SECOND: Final = 1
"""As the alert TidelogOutOfOrder."""


class CurrentProblem(TypedDict):
    """Something that is wrong with the broker or the cluster now, and the remedy."""

    name: str
    """Such as partition_offline."""
    severity: Severity
    text: str
    remedy: str


def _problem(severity: Severity, name: str, text: str, remedy: str) -> CurrentProblem:
    return {"name": name, "severity": severity, "text": text, "remedy": remedy}


_critical, _warning, _notice = (partial(_problem, each) for each in get_args(Severity))


def problems(
    condition: Condition, lately: Lately, sees_topic: Sees, sees_transaction: Sees
) -> list[CurrentProblem]:
    """All of them, the critical ones first."""
    found = [
        *_of_disk(condition, lately),
        *_of_partitions(condition, sees_topic),
        *_of_store(condition.store),
        *_of_limits(condition, lately),
        *_of_security(condition, lately),
        *_of_producers(condition, lately, sees_transaction),
        *_of_faults(condition),
    ]
    return most_severe_first(found)


def most_severe_first(found: Iterable[CurrentProblem]) -> list[CurrentProblem]:
    return sorted(found, key=lambda problem: get_args(Severity).index(problem["severity"]))


def _of_disk(condition: Condition, lately: Lately) -> Iterator[CurrentProblem]:
    disk = condition.disk
    if disk is None:
        yield _critical(
            "disk_unreadable",
            "The file system of the data folder does not answer.",
            "Check the disk and its mount.",
        )
    elif disk.free < disk.total * _FULL_DISK:
        yield _critical(
            "disk_full",
            f"The disk is full: {_percent(disk.free / disk.total)} of it are free.",
            "Free space, or lower the retention of large topics. Producers try again meanwhile, "
            "and nothing that was acknowledged is lost.",
        )
    elif disk.free < min(disk.total * _LITTLE_DISK, _LITTLE_DISK_BYTES):
        yield _warning(
            "disk_nearly_full",
            f"The disk is nearly full: {_percent(disk.free / disk.total)} of it are free.",
            "Free space, lower the retention of large topics, or use a larger disk.",
        )
    if failed := lately.errors.get("KAFKA_STORAGE_ERROR"):
        yield _critical(
            "storage_errors",
            f"Clients got KAFKA_STORAGE_ERROR {_times(failed, lately)}.",
            "If the disk is full, free space. If partitions are offline, the disk failed: "
            "check it, then restart the broker.",
        )


def _of_partitions(condition: Condition, sees: Sees) -> Iterator[CurrentProblem]:
    partitions = condition.partitions
    if partitions.offline.number:
        yield _critical(
            "partition_offline",
            f"{_some(partitions.offline, sees)} offline: their disk "
            "failed, or their logs could not be opened. Records that were acknowledged with acks=all "
            "are safe.",
            "The event partition_offline in the log has the reason. If the disk is full, free "
            "space; else check it, then restart the broker.",
        )
    if partitions.with_holes.number:
        yield _critical(
            "partition_has_hole",
            f"{_some(partitions.with_holes, sees)} without some of "
            "their files: reads of the lost offsets get CORRUPT_MESSAGE.",
            "Put the files back while the broker is stopped, or accept the loss with `tidelog "
            "topic delete-records` up to the end of the hole.",
        )
    if condition.is_cut_off:
        yield _critical(
            "broker_cut_off",
            "This broker cannot reach the store of the cluster: it serves no groups and no "
            "transactions, and cannot change the catalog.",
            "Check that the members of the store run and that this broker can connect to "
            "them (cluster.store). The broker recovers by itself. The event cluster_store_not_guarded "
            "has details.",
        )
    if condition.gone_brokers:
        names = ", ".join(map(str, sorted(condition.gone_brokers)[:_NAMED]))
        waiting = f"Partitions without a leader: {partitions.leaderless_count}. Their clients wait."
        yield _problem(
            "critical" if partitions.leaderless_count else "warning",
            "broker_gone",
            f"Brokers of the cluster are down: node id {names}."
            + (f" {waiting}" if partitions.leaderless_count else " Others lead their partitions."),
            "Check that they run and can connect to the store of the cluster. The page Cluster "
            "names the partitions.",
        )
    if partitions.without_replicas.number:
        yield _warning(
            "replicas_out_of_sync",
            f"{_some(partitions.without_replicas, sees)} without some of their replicas in sync.",
            "The page Cluster shows which brokers are missing: check that they run. If one "
            "will not come back, move its replicas to others by `tidelog reassign`.",
        )
    if partitions.below_least.number:
        yield _critical(
            "too_few_in_sync",
            f"{_some(partitions.below_least, sees)} with fewer "
            "replicas in sync than min.insync.replicas: nothing is written with acks=all.",
            "Start the brokers that are missing. Producers try again meanwhile.",
        )
    for node_id, count in partitions.lagging:
        yield _warning(
            "broker_lags",
            f"Broker {node_id} runs, and {count} of its replicas are not in sync.",
            "After a start it catches up by itself. If it does not: the events leader_not_reached "
            "and replica_not_fetched in its log have the reason; check its disk and its network.",
        )
    if partitions.reassigned.number:
        yield _notice(
            "reassignment_under_way",
            f"{_some(partitions.reassigned, sees)} being moved to other brokers.",
            "Nothing to do. `tidelog reassign status` shows how far it is, and `tidelog reassign "
            "cancel` ends it.",
        )
    if condition.hanging:
        yield _warning(
            "transaction_hangs",
            f"{_some(Named(len(condition.hanging), condition.hanging), sees)} held back by a transaction "
            "that its coordinator does not know: it never ends, and consumers of committed records "
            "wait.",
            "Abort it on the page Transactions.",
        )
    if condition.uncleanable_partitions:
        yield _warning(
            "partition_uncleanable",
            f"The compaction of {condition.uncleanable_partitions} partitions failed, and is not "
            "tried again: they grow.",
            "The event log_clean_failed in the log has the reason. Correct it, then restart the broker.",
        )


def _of_store(store: StoreView) -> Iterator[CurrentProblem]:
    members = store.members
    if store.is_lost:
        yield _critical(
            "catalog_lost",
            "The store of the cluster lacks the catalog that this broker has: it was emptied, or an "
            "older one was restored. Nothing can be changed, and a broker that stops cannot start again.",
            "Keep the brokers running, stop changes, and restore the newest backup of the store: "
            "docs/cluster.md, Back up and restore.",
        )
    if down := [each.url for each in members if each.problem]:
        yield _problem(
            "critical" if 2 * len(down) >= len(members) else "warning",
            "store_member_down",
            f"{len(down)} of {len(members)} members of the store do not serve: {', '.join(sorted(down))}.",
            "Check that they run. The event store_member_down in the log has the reason. Replace a "
            "member that lost its data: docs/cluster-operations.md.",
        )
    if alarms := sorted({alarm for each in members for alarm in each.alarms}):
        yield _critical(
            "store_alarm",
            f"The store has alarms ({', '.join(alarms)}), and refuses changes of the catalog.",
            "NOSPACE: compact and defragment etcd, then disarm the alarm. CORRUPT: replace the "
            "member. docs/cluster-operations.md has the commands.",
        )
    elif full := [each.url for each in members if each.used > _FULL_STORE]:
        yield _warning(
            "store_nearly_full",
            f"Members of the store use more than {_percent(_FULL_STORE)} of their quota: "
            f"{', '.join(sorted(full))}.",
            "Compact etcd (--auto-compaction-retention), or raise --quota-backend-bytes.",
        )
    if len({each.cluster_id for each in members if each.cluster_id}) > 1:
        yield _critical(
            "store_members_apart",
            "The members that cluster.store names belong to different clusters of etcd.",
            "Stop those that were started anew, and add them to the others as new members.",
        )
    if len(versions := {each.version for each in members if each.version}) > 1:
        yield _notice(
            "store_versions_differ",
            f"The members of the store have different versions: {', '.join(sorted(versions))}.",
            "Nothing to do during an upgrade. Otherwise upgrade the older ones.",
        )


def _of_limits(condition: Condition, lately: Lately) -> Iterator[CurrentProblem]:
    if condition.free_handles < condition.kept_handles:
        yield _critical(
            "file_handles_lacking",
            f"{condition.free_handles} of {condition.handle_limit} file handles are free; "
            f"{condition.kept_handles} are kept for logs, so connections are refused.",
            f"{HANDLES_ADVICE[0].upper()}{HANDLES_ADVICE[1:]}.",
        )
    elif refused := lately.events.get("tidelog_connections_refused"):
        yield _warning(
            "connections_refused",
            f"Connections were refused {_times(refused, lately)}.",
            "The event connection_refused names the limit that was reached: max.connections, "
            "max.connections.per.ip or the quota connection_creation_rate.",
        )
    if cut := lately.events.get("tidelog_connections_cut_for_memory"):
        yield _warning(
            "connections_cut_for_memory",
            f"Connections were closed {_times(cut, lately)}, because together they used queued.max.bytes.",
            "Find clients that do not read their answers, or raise queued.max.bytes.",
        )
    elif condition.queued_bytes > condition.queued_max_bytes // 2:
        share = _percent(condition.queued_bytes / condition.queued_max_bytes)
        yield _warning(
            "memory_short",
            f"Connections hold {share} of queued.max.bytes: clients that use much have to wait.",
            "Find clients that do not read their answers, or raise queued.max.bytes.",
        )


def _of_security(condition: Condition, lately: Lately) -> Iterator[CurrentProblem]:
    for name, seconds in sorted(condition.certificate_seconds.items()):
        if seconds < _CERTIFICATE_DAYS * _DAY_SECONDS:
            is_over = seconds <= 0
            when = "has expired" if is_over else f"expires in {seconds / _DAY_SECONDS:.1f} days"
            yield _problem(
                "critical" if is_over else "warning",
                "certificate_expires",
                f"The certificate of the listener {name} {when}.",
                "Replace its file: the broker notices the new one without a restart.",
            )
    if condition.has_open_store:
        yield _critical(
            "store_without_security",
            "The catalog is in an etcd without a password and without TLS: who reaches it may make "
            "users, change ACLs and register brokers.",
            "Enable TLS and authentication in etcd, and set cluster.store with https:, "
            "cluster.store.user and cluster.store.password.",
        )
    if failed := lately.events.get("tidelog_tls_failures"):
        yield _warning(
            "handshakes_refused",
            f"TLS handshakes failed {_times(failed, lately)}.",
            "The event connection_closed_bad_tls says why: a certificate that the client does not "
            "trust, one of the client that is missing or not accepted, or a client without TLS.",
        )
    if failed := lately.events.get("failed_authentication"):
        yield _warning(
            "authentications_failed",
            f"Clients failed to authenticate {_times(failed, lately)}.",
            "The event authentication_failed names their addresses: look for an old "
            "password, or for an attack.",
        )
    if denied := lately.events.get("access_denied"):
        yield _warning(
            "access_denied",
            f"The authorizer refused operations {_times(denied, lately)}.",
            "The event access_denied names user, operation and resource. The page Access says why, "
            "and which ACL is missing.",
        )


def _of_producers(condition: Condition, lately: Lately, sees: Sees) -> Iterator[CurrentProblem]:
    if fenced := lately.events.get("tidelog_fenced_batches"):
        yield _warning(
            "producer_fenced",
            f"Batches of a producer that was replaced were refused {_times(fenced, lately)} "
            "(INVALID_PRODUCER_EPOCH).",
            "Two processes use one transactional id: end the old one. The page Producers names it.",
        )
    out_of_order = lately.events.get("tidelog_out_of_order_batches", 0)
    if out_of_order > _OUT_OF_ORDER_PER_SECOND * max(lately.seconds, 1):
        yield _warning(
            "sequences_out_of_order",
            f"Batches whose sequence does not follow were refused {_times(out_of_order, lately)}.",
            "Clients repeat a lost request; many refusals mean that a producer cannot "
            "recover. The page Producers names it: restart it.",
        )
    waiting = {
        name: age
        for name, age in condition.prepared_seconds.items()
        if age > _PREPARED_SECONDS and sees(name)
    }
    for name, age in sorted(waiting.items(), key=lambda each: -each[1])[:_NAMED]:
        yield _warning(
            "transaction_waits",
            f"The transaction of {name} has been open for {age / 3600:.1f} hours. It has no timeout, "
            "and consumers of committed records wait for its end.",
            "If neither its producer nor its coordinator runs any more, commit or abort it on the "
            "page Transactions.",
        )


def _of_faults(condition: Condition) -> Iterator[CurrentProblem]:
    if condition.ordered_faults is not None:
        yield _problem(
            "warning" if condition.ordered_faults else "notice",
            "faults_enabled",
            f"Fault injection is enabled: {condition.ordered_faults} faults are active.",
            "For tests only. Start brokers with real data without faults.enable.",
        )


def _some(named: Named, sees: Sees) -> str:
    """The beginning of a sentence: how many partitions are, and those of them that may be named."""
    count = named.number
    visible = [f"{topic}-{index}" for topic, index in named.first if sees(topic)]
    shown = ", ".join(visible[:_NAMED])
    more = ", …" if shown and count > min(len(visible), _NAMED) else ""
    names = f" ({shown}{more})" if shown else ""
    return f"{count} partition{'s' if count > 1 else ''}{names} {'are' if count > 1 else 'is'}"


def _times(count: int, lately: Lately) -> str:
    minutes = lately.seconds / 60
    span = f"{minutes:.0f} minutes" if minutes >= 2 else f"{max(lately.seconds, 1):.0f} seconds"
    return f"{'once' if count == 1 else f'{count} times'} in the last {span}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"
