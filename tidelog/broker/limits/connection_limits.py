"""How many connections a client's address may have, and how many new ones per second.

Owns the number of connections per address and the use of the rates. Invariants: an address that has no
connection takes no memory, and the rates of at most `MOST_CLIENTS` addresses are remembered; a refused
connection does not count for the rate of its address.

Pure: the caller passes the time, in seconds. Source: max.connections.per.ip and its overrides; KIP-612.
"""

from collections import Counter, OrderedDict

from tidelog.broker.limits.client_quotas import MOST_CLIENTS, Bucket
from tidelog.protocol.quotas import CONNECTION_CREATION_RATE, IP, Quotas


class ConnectionLimits:
    """Counts the connections of each address at one broker, and tells which may connect."""

    def __init__(self, burst_seconds: float) -> None:
        self._burst_seconds = burst_seconds
        self._quotas: Quotas = {}
        self._open: Counter[str] = Counter()
        self._used: OrderedDict[str, Bucket] = OrderedDict()
        self._of_all: Bucket | None = None

    def accepts_in_seconds(self, rate: float, now: float) -> float:
        """How long the next connection has to wait if at most `rate` per second are accepted."""
        if self._of_all is None or self._of_all.rate != rate:
            self._of_all = Bucket(rate, self._burst_seconds)
        return self._of_all.delay_seconds(now)

    def accepted(self, now: float) -> None:
        """One more connection was accepted."""
        if self._of_all is not None:
            self._of_all.charge(1, now)

    def replace(self, quotas: Quotas) -> None:
        """The connection rates of addresses are these from now on; other quotas are ignored."""
        self._quotas = quotas

    def may_connect(self, host: str, now: float) -> bool:
        """Whether the rate of an address admits one more connection, which is counted then."""
        bucket = self._bucket(host)
        if bucket is None:
            return True
        if bucket.delay_seconds(now) > 0:
            return False
        bucket.charge(1, now)
        return True

    def connections(self, host: str) -> int:
        """How many connections an address has."""
        return self._open[host]

    def opened(self, host: str) -> None:
        """An address has one connection more."""
        self._open[host] += 1

    def closed(self, host: str) -> None:
        """An address has one connection less."""
        self._open[host] -= 1
        if self._open[host] <= 0:
            del self._open[host]

    def _bucket(self, host: str) -> Bucket | None:
        of_host = self._quotas.get(((IP, host),)) or self._quotas.get(((IP, None),), {})
        rate = of_host.get(CONNECTION_CREATION_RATE)
        if rate is None:
            return None
        bucket = self._used.get(host)
        if bucket is None or bucket.rate != rate:
            bucket = self._used[host] = Bucket(rate, self._burst_seconds)
            if len(self._used) > MOST_CLIENTS:
                self._used.popitem(last=False)
        else:
            self._used.move_to_end(host)
        return bucket
