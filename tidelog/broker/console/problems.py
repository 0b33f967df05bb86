"""What is wrong right now, in words, with the remedy.

Owns the table of problems, and the rule for each. The alerts of `deploy/prometheus/rules.yml` are those that
need no person who looks. Invariants: pure; a problem has a stable name; a topic or a transactional id is in
the text only if the caller may see it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, TypedDict, cast, get_args

from tidelog.broker.cluster.store import StoreView
from tidelog.broker.console.condition import Condition, Named
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


_TABLE: Final = """\
critical disk_unreadable: The file system of the data folder does not answer.
- Check the disk and its mount.
critical disk_full: The disk is full: {free} of it are free.
- Free space, or lower the retention of large topics. Producers try again meanwhile, and nothing that was
  acknowledged is lost.
warning disk_nearly_full: The disk is nearly full: {free} of it are free.
- Free space, lower the retention of large topics, or use a larger disk.
critical storage_errors: Clients got KAFKA_STORAGE_ERROR {times}.
- If the disk is full, free space. If partitions are offline, the disk failed: check it, then restart the
  broker.
critical partition_offline: {some} offline: their disk failed, or their logs could not be opened. Records that
  were acknowledged with acks=all are safe.
- The event partition_offline in the log has the reason. If the disk is full, free space; else check it, then
  restart the broker.
critical partition_has_hole: {some} without some of their files: reads of the lost offsets get
  CORRUPT_MESSAGE.
- Put the files back while the broker is stopped, or accept the loss with `tidelog topic delete-records` up to
  the end of the hole.
critical broker_cut_off: This broker cannot reach the store of the cluster: it serves no groups and no
  transactions, and cannot change the catalog.
- Check that the members of the store run and that this broker can connect to them (cluster.store). The broker
  recovers by itself. The event cluster_store_not_guarded has details.
warning broker_gone: Brokers of the cluster are down: node id {names}. {consequence}
- Check that they run and can connect to the store of the cluster. The page Cluster names the partitions.
warning replicas_out_of_sync: {some} without some of their replicas in sync.
- The page Cluster shows which brokers are missing: check that they run. If one will not come back, move its
  replicas to others by `tidelog reassign`.
critical too_few_in_sync: {some} with fewer replicas in sync than min.insync.replicas: nothing is written with
  acks=all.
- Start the brokers that are missing. Producers try again meanwhile.
warning broker_lags: Broker {node_id} runs, and {count} of its replicas are not in sync.
- After a start it catches up by itself. If it does not: the events leader_not_reached and replica_not_fetched
  in its log have the reason; check its disk and its network.
notice reassignment_under_way: {some} being moved to other brokers.
- Nothing to do. `tidelog reassign status` shows how far it is, and `tidelog reassign cancel` ends it.
warning transaction_hangs: {some} held back by a transaction that its coordinator does not know: it never
  ends, and consumers of committed records wait.
- Abort it on the page Transactions.
warning partition_uncleanable: The compaction of {count} partitions failed, and is not tried again: they grow.
- The event log_clean_failed in the log has the reason. Correct it, then restart the broker.
critical catalog_lost: The store of the cluster lacks the catalog that this broker has: it was emptied, or an
  older one was restored. Nothing can be changed, and a broker that stops cannot start again.
- Keep the brokers running, stop changes, and restore the newest backup of the store: docs/cluster.md, Back up
  and restore.
warning store_member_down: {count} of {total} members of the store do not serve: {names}.
- Check that they run. The event store_member_down in the log has the reason. Replace a member that lost its
  data: docs/cluster-operations.md.
critical store_alarm: The store has alarms ({names}), and refuses changes of the catalog.
- NOSPACE: compact and defragment etcd, then disarm the alarm. CORRUPT: replace the member.
  docs/cluster-operations.md has the commands.
warning store_nearly_full: Members of the store use more than {share} of their quota: {names}.
- Compact etcd (--auto-compaction-retention), or raise --quota-backend-bytes.
critical store_members_apart: The members that cluster.store names belong to different clusters of etcd.
- Stop those that were started anew, and add them to the others as new members.
notice store_versions_differ: The members of the store have different versions: {names}.
- Nothing to do during an upgrade. Otherwise upgrade the older ones.
critical file_handles_lacking: {free} of {limit} file handles are free; {kept} are kept for logs, so
  connections are refused.
- {advice}.
warning connections_refused: Connections were refused {times}.
- The event connection_refused names the limit that was reached: max.connections, max.connections.per.ip or
  the quota connection_creation_rate.
warning connections_cut_for_memory: Connections were closed {times}, because together they used
  queued.max.bytes.
- Find clients that do not read their answers, or raise queued.max.bytes.
warning memory_short: Connections hold {share} of queued.max.bytes: clients that use much have to wait.
- Find clients that do not read their answers, or raise queued.max.bytes.
warning certificate_expires: The certificate of the listener {name} {when}.
- Replace its file: the broker notices the new one without a restart.
critical store_without_security: The catalog is in an etcd without a password and without TLS: who reaches it
  may make users, change ACLs and register brokers.
- Enable TLS and authentication in etcd, and set cluster.store with https:, cluster.store.user and
  cluster.store.password.
warning handshakes_refused: TLS handshakes failed {times}.
- The event connection_closed_bad_tls says why: a certificate that the client does not trust, one of the
  client that is missing or not accepted, or a client without TLS.
warning authentications_failed: Clients failed to authenticate {times}.
- The event authentication_failed names their addresses: look for an old password, or for an attack.
warning access_denied: The authorizer refused operations {times}.
- The event access_denied names user, operation and resource. The page Access says why, and which ACL is
  missing.
warning producer_fenced: Batches of a producer that was replaced were refused {times}
  (INVALID_PRODUCER_EPOCH).
- Two processes use one transactional id: end the old one. The page Producers names it.
warning sequences_out_of_order: Batches whose sequence does not follow were refused {times}.
- Clients repeat a lost request; many refusals mean that a producer cannot recover. The page Producers names
  it: restart it.
warning transaction_waits: The transaction of {name} has been open for {hours} hours. It has no timeout, and
  consumers of committed records wait for its end.
- If neither its producer nor its coordinator runs any more, commit or abort it on the page Transactions.
notice faults_enabled: Fault injection is enabled: {count} faults are active.
- For tests only. Start brokers with real data without faults.enable.
"""
"""Severity, name and text of each problem, then its remedy. An indented line continues the one before."""
_PROBLEM: Final = re.compile(r"(\w+) (\w+): (.+)\n- (.+)\n")
_KNOWN: Final = {
    name: (cast(Severity, severity), text, remedy)
    for severity, name, text, remedy in _PROBLEM.findall(_TABLE.replace("\n  ", " "))
}


def _problem(name: str, severity: Severity | None = None, /, **values: object) -> CurrentProblem:
    usual, text, remedy = _KNOWN[name]
    said, to_do = text.format(**values), remedy.format(**values)
    return {"name": name, "severity": severity or usual, "text": said, "remedy": to_do}


def problems(
    condition: Condition, lately: Lately, sees_topic: Sees, sees_transaction: Sees
) -> list[CurrentProblem]:
    """All of them, the critical ones first."""
    return most_severe_first(
        (
            *_of_disk(condition, lately),
            *_of_partitions(condition, sees_topic),
            *_of_store(condition.store),
            *_of_limits(condition, lately),
            *_of_security(condition, lately),
            *_of_producers(condition, lately, sees_transaction),
        )
    )


def most_severe_first(found: Iterable[CurrentProblem]) -> list[CurrentProblem]:
    return sorted(found, key=lambda problem: get_args(Severity).index(problem["severity"]))


def _of_disk(condition: Condition, lately: Lately) -> Iterator[CurrentProblem]:
    disk = condition.disk
    if disk is None:
        yield _problem("disk_unreadable")
    elif disk.free < disk.total * _FULL_DISK:
        yield _problem("disk_full", free=_percent(disk.free / disk.total))
    elif disk.free < min(disk.total * _LITTLE_DISK, _LITTLE_DISK_BYTES):
        yield _problem("disk_nearly_full", free=_percent(disk.free / disk.total))
    if failed := lately.errors.get("KAFKA_STORAGE_ERROR"):
        yield _problem("storage_errors", times=_times(failed, lately))


def _of_partitions(condition: Condition, sees: Sees) -> Iterator[CurrentProblem]:
    partitions = condition.partitions
    if condition.is_cut_off:
        yield _problem("broker_cut_off")
    if condition.gone_brokers:
        names = ", ".join(map(str, sorted(condition.gone_brokers)[:_NAMED]))
        if count := partitions.leaderless_count:
            waiting = f"Partitions without a leader: {count}. Their clients wait."
            yield _problem("broker_gone", "critical", names=names, consequence=waiting)
        else:
            yield _problem("broker_gone", names=names, consequence="Others lead their partitions.")
    for name, named in (
        ("partition_offline", partitions.offline),
        ("partition_has_hole", partitions.with_holes),
        ("replicas_out_of_sync", partitions.without_replicas),
        ("too_few_in_sync", partitions.below_least),
        ("reassignment_under_way", partitions.reassigned),
        ("transaction_hangs", Named(len(condition.hanging), condition.hanging)),
    ):
        if named.number:
            yield _problem(name, some=_some(named, sees))
    for node_id, count in partitions.lagging:
        yield _problem("broker_lags", node_id=node_id, count=count)
    if count := condition.uncleanable_partitions:
        yield _problem("partition_uncleanable", count=count)


def _of_store(store: StoreView) -> Iterator[CurrentProblem]:
    members = store.members
    if store.is_lost:
        yield _problem("catalog_lost")
    if down := sorted(each.url for each in members if each.problem):
        severity: Severity = "critical" if 2 * len(down) >= len(members) else "warning"
        counts = {"count": len(down), "total": len(members)}
        yield _problem("store_member_down", severity, names=", ".join(down), **counts)
    if alarms := sorted({alarm for each in members for alarm in each.alarms}):
        yield _problem("store_alarm", names=", ".join(alarms))
    elif full := sorted(each.url for each in members if each.used > _FULL_STORE):
        yield _problem("store_nearly_full", share=_percent(_FULL_STORE), names=", ".join(full))
    if len({each.cluster_id for each in members if each.cluster_id}) > 1:
        yield _problem("store_members_apart")
    if len(versions := {each.version for each in members if each.version}) > 1:
        yield _problem("store_versions_differ", names=", ".join(sorted(versions)))


def _of_limits(condition: Condition, lately: Lately) -> Iterator[CurrentProblem]:
    free, kept = condition.free_handles, condition.kept_handles
    if free < kept:
        advice = HANDLES_ADVICE[0].upper() + HANDLES_ADVICE[1:]
        limit = condition.handle_limit
        yield _problem("file_handles_lacking", free=free, limit=limit, kept=kept, advice=advice)
    elif refused := lately.events.get("tidelog_connections_refused"):
        yield _problem("connections_refused", times=_times(refused, lately))
    if cut := lately.events.get("tidelog_connections_cut_for_memory"):
        yield _problem("connections_cut_for_memory", times=_times(cut, lately))
    elif condition.queued_bytes > condition.queued_max_bytes // 2:
        yield _problem("memory_short", share=_percent(condition.queued_bytes / condition.queued_max_bytes))


def _of_security(condition: Condition, lately: Lately) -> Iterator[CurrentProblem]:
    for name, seconds in sorted(condition.certificate_seconds.items()):
        if seconds <= 0:
            yield _problem("certificate_expires", "critical", name=name, when="has expired")
        elif seconds < _CERTIFICATE_DAYS * _DAY_SECONDS:
            when = f"expires in {seconds / _DAY_SECONDS:.1f} days"
            yield _problem("certificate_expires", name=name, when=when)
    if condition.has_open_store:
        yield _problem("store_without_security")
    for event, name in (
        ("tidelog_tls_failures", "handshakes_refused"),
        ("failed_authentication", "authentications_failed"),
        ("access_denied", "access_denied"),
    ):
        if count := lately.events.get(event):
            yield _problem(name, times=_times(count, lately))


def _of_producers(condition: Condition, lately: Lately, sees: Sees) -> Iterator[CurrentProblem]:
    if fenced := lately.events.get("tidelog_fenced_batches"):
        yield _problem("producer_fenced", times=_times(fenced, lately))
    out_of_order = lately.events.get("tidelog_out_of_order_batches", 0)
    if out_of_order > _OUT_OF_ORDER_PER_SECOND * max(lately.seconds, 1):
        yield _problem("sequences_out_of_order", times=_times(out_of_order, lately))
    waiting = ((age, name) for name, age in condition.prepared_seconds.items() if age > _PREPARED_SECONDS)
    visible = sorted((each for each in waiting if sees(each[1])), reverse=True)
    for age, name in visible[:_NAMED]:
        yield _problem("transaction_waits", name=name, hours=f"{age / 3600:.1f}")
    if (count := condition.ordered_faults) is not None:
        yield _problem("faults_enabled", "warning" if count else "notice", count=count)


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
