"""etcd as brokers see it, on virtual time: its keys, transactions, leases and watches behind the real store.

Owns what etcd keeps, and the ways to its members. The brokers' `EtcdStore` runs unchanged over it; only HTTP
is missing. What etcd and a network to it do: a request may be executed though its answer is lost, or long
after its sender gave up; a member that is stopped answers nothing, ends no connection, and executes what it
got when it goes on; a watch is as late as its member; a compaction ends what is behind it; after a restart
of all members each lease begins anew. Invariants: transactions are executed one after the other; a revision
has the changes of one; a lease ends no sooner than its time after the last keepalive was executed.

Source: etcd's rpc.proto and its guarantees ("KV API guarantees").
"""

import asyncio
import base64
import random
from bisect import bisect_left, insort
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import Context
from typing import Any, Final, NamedTuple

from tests.simulation.virtual_loop import Node, VirtualLoop
from tests.simulation.virtual_network import Network
from tidelog.broker.cluster.etcd_client import EtcdClient, EtcdCompacted, EtcdUnavailable, _Retry

MEMBERS: Final = ("etcd-1", "etcd-2", "etcd-3")
_EARLY_S: Final = 1e-6
"""A timer of the loop may fire so much earlier than it was set."""
Answer = Mapping[str, Any]


class StoreFaults(NamedTuple):
    """Chances of each mishap per request, and the longest delays in seconds."""

    late: float = 0.0
    """It is executed long after it was sent."""
    unanswered: float = 0.0
    slow: float = 0.0
    """Its answer takes a while."""
    delay_s: float = 0.004
    late_s: float = 4.0
    slow_s: float = 0.5


class _Value(NamedTuple):
    mod_revision: int
    version: int
    value: bytes
    """Meaningless where `version` is 0: the key was deleted."""
    lease: int


class _Lease(NamedTuple):
    seconds: int
    ends: float


class _Watcher:
    """One stream: what is under way to its reader, and how to wake it."""

    def __init__(self, first: bytes, end: bytes, node: Node) -> None:
        self.first, self.end, self.node = first, end, node
        self.arrived: deque[Answer | None] = deque()
        self.news = asyncio.Event()
        self._under_way: deque[Answer | None] = deque()

    def send(self, message: Answer | None) -> None:
        self._under_way.append(message)

    def arrive(self) -> None:
        self.arrived.append(self._under_way.popleft())
        self.news.set()


class VirtualEtcd:
    """All members, which keep the same."""

    def __init__(self, network: Network, rng: random.Random) -> None:
        self.network = network
        self.loop: VirtualLoop = network.loop
        self.rng = rng
        self.faults = StoreFaults()
        self.most_lease_slack_s = 0.5
        """etcd looks for leases that ended twice a second."""
        self.revision = 1
        self.on_change: list[Callable[[str, bytes], None]] = []
        """Called with each key that is put, and its value."""
        self.counts: dict[str, int] = {}
        self._keys: list[bytes] = []
        self._values: dict[bytes, list[_Value]] = {}
        self._leases: dict[int, _Lease] = {}
        self._watchers: dict[str, list[_Watcher]] = {member: [] for member in MEMBERS}
        self._compacted = 0
        self._stopped: dict[str, list[Callable[[], None]]] = {}

    # What an operator or a machine does to it

    def stop(self, member: str) -> None:
        """It hangs, until `go_on`."""
        self._stopped.setdefault(member, [])

    def go_on(self, member: str) -> None:
        for work in self._stopped.pop(member, ()):
            self.loop.call_soon(work, context=Context())

    def restart(self) -> None:
        """All members end and begin again: leases begin anew, watches end, what was asked is not done."""
        now = self.loop.time()
        self._stopped.clear()
        for number, lease in self._leases.items():
            self._set_lease(number, lease.seconds, now)
        for member, watchers in self._watchers.items():
            for watcher in watchers:
                self._send(member, watcher, None)
            watchers.clear()

    def compact(self) -> None:
        """Keep of each key only what it is now."""
        self._compacted = self.revision
        for name in list(self._keys):
            values = self._values[name]
            del values[:-1]
            if not values[0].version:
                del self._values[name]
                self._keys.remove(name)

    # What there is

    def member_watched_by(self, node: Node) -> str:
        """The member at which a broker watches."""
        return next(
            member
            for member, watchers in self._watchers.items()
            if any(watcher.node is node for watcher in watchers)
        )

    def lease_ends(self) -> list[float]:
        """When each lease ends, if it is not kept alive."""
        return [lease.ends for lease in self._leases.values()]

    # What a member does

    def value_of(self, name: str) -> bytes | None:
        """Of a key now."""
        values = self._values.get(name.encode())
        return values[-1].value if values and values[-1].version else None

    def execute(self, path: str, body: Answer) -> Answer:
        """The answer to a request; an error has `code` and `message`."""
        match path:
            case "/v3/kv/txn":
                return self._transaction(body)
            case "/v3/kv/range":
                if self._compacted > int(body.get("revision", 0)) > 0:
                    return {"code": 11, "message": "mvcc: required revision has been compacted"}
                return self._headed(self._range(body))
            case "/v3/kv/put":
                return self._transaction({"success": [{"request_put": body}]})
            case "/v3/kv/deleterange":
                return self._transaction({"success": [{"request_delete_range": body}]})
            case "/v3/lease/grant":
                number = int(body.get("ID", 0)) or self.rng.getrandbits(62) | 1
                if number in self._leases:
                    return {"code": 9, "message": "etcdserver: lease already exists"}
                self._set_lease(number, int(body["TTL"]), self.loop.time())
                return self._headed({"ID": str(number), "TTL": body["TTL"]})
            case "/v3/lease/revoke":
                if self._leases.pop(int(body["ID"]), None) is None:
                    return {"code": 5, "message": "etcdserver: requested lease not found"}
                self._end_lease(int(body["ID"]))
                return self._headed({})
            case "/v3/lease/keepalive":
                lease = self._leases.get(int(body["ID"]))
                if lease is None:
                    return {"result": {"ID": body["ID"]}}
                self._set_lease(int(body["ID"]), lease.seconds, self.loop.time())
                return {"result": {"ID": body["ID"], "TTL": str(lease.seconds)}}
            case "/v3/maintenance/status":
                return self._headed({"version": "3.6.0", "leader": "1", "dbSizeQuota": "2147483648"})
        raise AssertionError(path)

    def _headed(self, answer: dict[str, Any]) -> Answer:
        return {"header": {"revision": str(self.revision), "cluster_id": "1"}, **answer}

    def _transaction(self, body: Answer) -> Answer:
        succeeded = all(map(self._holds, body.get("compare", ())))
        changed: list[tuple[bytes, _Value]] = []
        responses: list[dict[str, Any]] = []
        for operation in body.get("success" if succeeded else "failure", ()):
            ((kind, fields),) = operation.items()
            if kind == "request_range":
                responses.append({"response_range": self._range(fields)})
                continue
            if kind == "request_put":
                lease = int(fields.get("lease", 0))
                if lease and lease not in self._leases:
                    return {"code": 5, "message": "etcdserver: requested lease not found"}
                names = [(_bytes(fields["key"]), _bytes(fields.get("value", "")), lease)]
            else:
                names = [(name, None, 0) for name in self._named(fields)]
            changed += [(name, self._changed(name, value, lease)) for name, value, lease in names]
            responses.append({kind.replace("request", "response"): {}})
        if changed:
            self._commit(changed)
        answer: dict[str, Any] = {"responses": responses}
        if succeeded:
            answer["succeeded"] = True
        return self._headed(answer)

    def _holds(self, comparison: Answer) -> bool:
        values = self._values.get(_bytes(comparison["key"]))
        now = values[-1] if values and values[-1].version else None
        if comparison["target"] == "VERSION":
            return (now.version if now else 0) == int(comparison["version"])
        return (now.mod_revision if now else 0) == int(comparison["mod_revision"])

    def _changed(self, name: bytes, value: bytes | None, lease: int) -> _Value:
        values = self._values.get(name)
        version = 0 if value is None else (values[-1].version if values else 0) + 1
        return _Value(self.revision + 1, version, value or b"", lease)

    def _commit(self, changed: list[tuple[bytes, _Value]]) -> None:
        self.revision += 1
        for name, value in changed:
            if name not in self._values:
                insort(self._keys, name)
                self._values[name] = []
            self._values[name].append(value)
        for name, value in changed:
            if value.version:
                for told in self.on_change:
                    told(name.decode(), value.value)
        for member, watchers in self._watchers.items():
            watchers[:] = [each for each in watchers if not each.node.is_dead]
            for watcher in watchers:
                self._tell(member, watcher, changed)

    def _tell(self, member: str, watcher: _Watcher, changed: list[tuple[bytes, _Value]]) -> None:
        events = [
            {"kv": _entry(name, value)}
            for name, value in changed
            if value.version and watcher.first <= name < watcher.end
        ]
        if events:
            self._send(member, watcher, self._headed({"events": events}))

    def _named(self, fields: Answer) -> list[bytes]:
        first = _bytes(fields["key"])
        if "range_end" not in fields:
            found = [first] if first in self._values else []
        else:
            found = self._keys[
                bisect_left(self._keys, first) : bisect_left(self._keys, _bytes(fields["range_end"]))
            ]
        return [name for name in found if self._values[name][-1].version]

    def _range(self, fields: Answer) -> dict[str, Any]:
        at, limit = int(fields.get("revision", 0)) or self.revision, int(fields.get("limit", 0))
        first = _bytes(fields["key"])
        end = _bytes(fields["range_end"]) if "range_end" in fields else first + b"\0"
        kvs = []
        for name in self._keys[bisect_left(self._keys, first) : bisect_left(self._keys, end)]:
            value = next((each for each in reversed(self._values[name]) if each.mod_revision <= at), None)
            if value is not None and value.version:
                kvs.append(_entry(name, value))
        return {"kvs": kvs[: limit or None]} if kvs else {}

    def _set_lease(self, number: int, seconds: int, now: float) -> None:
        ends = now + seconds + self.rng.choice((0, self.rng.random() * self.most_lease_slack_s))
        self._leases[number] = _Lease(seconds, ends)
        self.loop.call_at(ends, self._look_at_lease, number, context=Context())

    def _look_at_lease(self, number: int) -> None:
        lease = self._leases.get(number)
        if lease is None or lease.ends > self.loop.time() + _EARLY_S:
            return
        if len(self._stopped) * 2 > len(MEMBERS):
            self.loop.call_later(0.5, self._look_at_lease, number, context=Context())
            return
        del self._leases[number]
        self._end_lease(number)

    def _end_lease(self, number: int) -> None:
        names = [
            name
            for name in self._keys
            if self._values[name][-1].version and self._values[name][-1].lease == number
        ]
        if names:
            self._commit([(name, self._changed(name, None, 0)) for name in names])

    # The ways to it

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _delay_s(self) -> float:
        return self.faults.delay_s * self.rng.random() ** 3 + 1e-6

    def at_member(self, member: str, work: Callable[[], None]) -> None:
        """Do this now, or when the member goes on. A member alone does nothing without most of the others."""
        stopped = self._stopped.get(member)
        if stopped is None and len(self._stopped) * 2 > len(MEMBERS):
            stopped = next(iter(self._stopped.values()))
        if stopped is None:
            work()
        else:
            stopped.append(work)

    def ask(
        self, node: Node, member: str, path: str, body: Answer, answered: Callable[[Answer], None]
    ) -> None:
        """Send a request from a machine; `answered` is called there if the answer comes back."""
        drawn, faults = self.rng.random(), self.faults
        delay_s = self._delay_s()
        if drawn < faults.late:
            self.count("requests to etcd that were late")
            delay_s = self.rng.random() * faults.late_s
        is_lost = faults.late <= drawn < faults.late + faults.unanswered
        back = node.context.copy()

        def work() -> None:
            answer = self.execute(path, body)
            if is_lost:
                self.count("answers of etcd that were lost")
                return
            is_slow = self.rng.random() < faults.slow
            taken_s = self.rng.random() * faults.slow_s if is_slow else self._delay_s()
            when = self.loop.time() + taken_s
            self.network.carry(member, node.machine, when, answered, answer, context=back)

        when = self.loop.time() + delay_s
        self.network.carry(node.machine, member, when, self.at_member, member, work)

    def begin_watch(self, node: Node, member: str, request: Answer) -> _Watcher:
        first, end = _bytes(request["key"]), _bytes(request["range_end"])
        watcher = _Watcher(first, end, node)
        start = int(request["start_revision"])

        def work() -> None:
            if start <= self._compacted:
                self._send(member, watcher, {"compact_revision": str(self._compacted), "canceled": True})
                return
            self._watchers[member].append(watcher)
            self._send(member, watcher, self._headed({"created": True}))
            revisions: dict[int, list[tuple[bytes, _Value]]] = {}
            for name in self._keys[bisect_left(self._keys, first) : bisect_left(self._keys, end)]:
                for value in self._values[name]:
                    if value.mod_revision >= start:
                        revisions.setdefault(value.mod_revision, []).append((name, value))
            for revision in sorted(revisions):
                self._tell(member, watcher, revisions[revision])

        when = self.loop.time() + self._delay_s()
        self.network.carry(node.machine, member, when, self.at_member, member, work)
        return watcher

    def _send(self, member: str, watcher: _Watcher, message: Answer | None) -> None:
        def work() -> None:
            when = self.loop.time() + self._delay_s()
            node = watcher.node
            self.network.carry(member, node.machine, when, watcher.arrive, context=node.context.copy())

        watcher.send(message)
        self.at_member(member, work)

    def end_watch(self, watcher: _Watcher) -> None:
        for watchers in self._watchers.values():
            if watcher in watchers:
                watchers.remove(watcher)


class VirtualEtcdClient(EtcdClient):
    """The real client of one broker, with the members instead of HTTP."""

    def __init__(self, etcd: VirtualEtcd, node: Node, patience_s: float = 5.0) -> None:
        super().__init__(MEMBERS, patience_s=patience_s)
        self._etcd = etcd
        self._node = node

    async def _post(
        self, url: str, path: str, body: Answer, headers: Mapping[str, str], timeout_s: float = 2.0
    ) -> Any:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(found: Answer) -> None:
            if not answer.done():
                answer.set_result(found)

        self._etcd.ask(self._node, url, path, body, answered)
        try:
            async with asyncio.timeout(timeout_s):
                found = await answer
        except TimeoutError as error:
            raise _Retry(f"{url}: {error!r}") from error
        if "code" in found:
            self._refused(url, f'{{"code": {found["code"]}, "message": "{found["message"]}"}}')
        return found

    async def stream(self, path: str, body: Answer, endpoint: int) -> AsyncGenerator[Answer, None]:
        member = self.endpoints[endpoint % len(self.endpoints)]
        watcher = self._etcd.begin_watch(self._node, member, body["create_request"])
        try:
            while True:
                while not watcher.arrived:
                    watcher.news.clear()
                    await watcher.news.wait()
                message = watcher.arrived.popleft()
                if message is None:
                    raise EtcdUnavailable(f"the watch at {member} ended")
                if "compact_revision" in message:
                    raise EtcdCompacted
                yield message
        finally:
            self._etcd.end_watch(watcher)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _entry(name: bytes, value: _Value) -> Answer:
    entry = {
        "key": base64.b64encode(name).decode(),
        "value": base64.b64encode(value.value).decode(),
        "mod_revision": str(value.mod_revision),
        "version": str(value.version),
    }
    return entry if not value.lease else {**entry, "lease": str(value.lease)}
