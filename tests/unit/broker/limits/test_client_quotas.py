"""Which quota holds for a client, in Kafka's order, and how its use becomes a delay."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.limits.client_quotas import MOST_CLIENTS, Bucket, ClientQuotas
from tidelog.protocol.quotas import CLIENT_ID, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, USER, QuotaEntity

BURST_SECONDS = 10.0


def entity(user: str | None = "", client_id: str | None = "") -> QuotaEntity:
    """`""` leaves a type out, None stands for its default."""
    return tuple((kind, name) for kind, name in ((CLIENT_ID, client_id), (USER, user)) if name != "")


MOST_SPECIFIC_FIRST = [
    entity("alice", "app"),
    entity("alice", None),
    entity("alice"),
    entity(None, "app"),
    entity(None, None),
    entity(None),
    entity("", "app"),
    entity("", None),
]


def quotas_with(values: Mapping[QuotaEntity, float], name: str = PRODUCER_BYTE_RATE) -> ClientQuotas:
    quotas = ClientQuotas(BURST_SECONDS)
    quotas.replace({entity: {name: value} for entity, value in values.items()})
    return quotas


@pytest.mark.parametrize("left_out", range(len(MOST_SPECIFIC_FIRST)))
def test_the_most_specific_quota_counts_user_before_client_id(left_out: int) -> None:
    rates = {entity: 1000.0 + at for at, entity in enumerate(MOST_SPECIFIC_FIRST) if at >= left_out}
    bucket = quotas_with(rates).buckets("alice", "app").produced_bytes
    assert bucket is not None
    assert bucket.rate == 1000.0 + left_out


def test_each_kind_of_quota_is_looked_up_by_itself() -> None:
    quotas = ClientQuotas(BURST_SECONDS)
    quotas.replace({entity("alice"): {PRODUCER_BYTE_RATE: 5.0}, entity(None): {REQUEST_PERCENTAGE: 50.0}})
    produced, fetched, requests, changed = quotas.buckets("alice", "app")
    assert produced is not None
    assert produced.rate == 5.0
    assert fetched is None
    assert changed is None
    assert requests is not None
    assert requests.rate == 0.5


def test_clients_of_a_user_share_the_users_quota_and_those_of_a_pair_do_not() -> None:
    quotas = quotas_with({entity("alice"): 10.0, entity("bob", None): 10.0})
    assert quotas.buckets("alice", "a").produced_bytes is quotas.buckets("alice", "b").produced_bytes
    assert quotas.buckets("bob", "a").produced_bytes is not quotas.buckets("bob", "b").produced_bytes
    assert quotas.buckets("carol", "a") == (None, None, None, None)


def test_a_change_of_other_quotas_forgets_no_use() -> None:
    quotas = quotas_with({entity("alice"): 10.0})

    def delay_seconds() -> float:
        bucket = quotas.buckets("alice", "app").produced_bytes
        assert bucket is not None
        return bucket.delay_seconds(0.0)

    first = quotas.buckets("alice", "app").produced_bytes
    assert first is not None
    first.charge(1000.0, 0.0)
    del first  # Only the quotas remember it.
    quotas.replace({entity("alice"): {PRODUCER_BYTE_RATE: 10.0}, entity("bob"): {PRODUCER_BYTE_RATE: 1.0}})
    assert delay_seconds() > 0
    quotas.replace({entity("alice"): {PRODUCER_BYTE_RATE: 20.0}})
    assert delay_seconds() == 0


def test_memory_is_bounded_however_many_client_ids_a_peer_invents() -> None:
    quotas = quotas_with({entity("", None): 10.0})
    for number in range(MOST_CLIENTS + 100):
        quotas.buckets("alice", f"{number}{'x' * 2_000}")
    assert len(quotas._clients) == MOST_CLIENTS
    assert len(quotas._buckets) == MOST_CLIENTS
    assert max(len(client_id) for _, client_id in quotas._clients) == 1_000


def test_a_burst_is_free_and_what_is_beyond_it_is_waited_for() -> None:
    bucket = Bucket(100.0, BURST_SECONDS)
    bucket.charge(1000.0, 0.0)
    assert bucket.delay_seconds(0.0) == 0.0
    bucket.charge(500.0, 0.0)
    assert bucket.delay_seconds(0.0) == 5.0
    assert bucket.delay_seconds(2.0) == 3.0
    assert bucket.delay_seconds(60.0) == 0.0


@given(
    rate=st.floats(0.1, 1e9),
    amounts=st.lists(st.floats(0.0, 1e9), min_size=1, max_size=30),
    pauses=st.lists(st.floats(0.0, 100.0), min_size=30, max_size=30),
)
def test_a_client_that_waits_for_its_throttle_time_gets_its_quota_and_one_burst_at_most(
    rate: float, amounts: list[float], pauses: list[float]
) -> None:
    bucket = Bucket(rate, BURST_SECONDS)
    now = used = 0.0
    for amount, pause in zip(amounts, pauses, strict=False):
        bucket.charge(amount, now)
        used += amount
        now += bucket.delay_seconds(now)
        assert used <= rate * (now + BURST_SECONDS) * 1.000001 + 1e-6
        now += pause
