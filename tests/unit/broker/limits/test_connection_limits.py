"""How many connections an address may have, and how fast it may make new ones."""

from tidelog.broker.limits.connection_limits import ConnectionLimits
from tidelog.protocol.quotas import CONNECTION_CREATION_RATE, IP, PRODUCER_BYTE_RATE, USER

A, B = "10.0.0.1", "10.0.0.2"


def limits(default: float | None = None, **of_address: float) -> ConnectionLimits:
    made = ConnectionLimits(burst_seconds=2.0)
    rates = {((IP, name.replace("_", ".")),): rate for name, rate in of_address.items()}
    if default is not None:
        rates[((IP, None),)] = default  # type: ignore[index]
    quotas = {entity: {CONNECTION_CREATION_RATE: rate} for entity, rate in rates.items()}
    made.replace({**quotas, ((USER, "alice"),): {PRODUCER_BYTE_RATE: 1.0}})
    return made


def admitted(limits: ConnectionLimits, host: str, times: int, now: float) -> int:
    return sum(limits.may_connect(host, now) for _ in range(times))


def test_an_address_is_refused_above_its_rate_and_admitted_again_later() -> None:
    of_a = limits(**{A.replace(".", "_"): 5.0})
    assert admitted(of_a, A, 100, 0.0) == 11
    assert admitted(of_a, A, 100, 0.1) == 0
    assert admitted(of_a, A, 100, 1.0) == 5
    assert admitted(of_a, B, 100, 1.0) == 100


def test_the_default_holds_for_addresses_without_a_rate_each_by_itself() -> None:
    of_all = limits(default=1.0)
    assert admitted(of_all, A, 10, 0.0) == admitted(of_all, B, 10, 0.0) == 3


def test_open_connections_are_counted_per_address_and_gone_ones_take_no_memory() -> None:
    of_all = limits()
    of_all.opened(A)
    of_all.opened(A)
    assert (of_all.connections(A), of_all.connections(B)) == (2, 0)
    of_all.closed(A)
    of_all.closed(A)
    assert not of_all._open


def test_above_the_rate_of_the_broker_the_next_connection_waits() -> None:
    of_all = limits()
    assert of_all.accepts_in_seconds(10.0, 0.0) == 0.0
    for _ in range(25):
        of_all.accepted(0.0)
    assert of_all.accepts_in_seconds(10.0, 0.0) == 0.5
    assert of_all.accepts_in_seconds(10.0, 0.5) == 0.0
