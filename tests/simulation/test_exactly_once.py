"""Exactly once, in order, or an honest error: the client's machines against the broker's, on failing
networks.

Each schedule is drawn from its seed alone. To replay one: SIMULATION_SEED=<seed> pytest tests/simulation.
SIMULATION_SCHEDULES says how many seeds each test runs; by default all tests together run some hundreds.
"""

import os
import random
from dataclasses import dataclass

import pytest

from tests.simulation.client_shell import Client
from tests.simulation.network import Broker, Clock, Faults, Log
from tidelog.broker.storage.producer_state import ProducerRules
from tidelog.client import DeliveryUncertainError, TopicPartition
from tidelog.client.producer.batch import Identity, Outcome
from tidelog.client.producer.state import MAX_EPOCH, PartitionState, ProducerState
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import RecordBatchBuilder, read_batch_header
from tidelog.protocol.types import MAX_SEQUENCE

SCHEDULES = int(os.environ.get("SIMULATION_SCHEDULES", "25"))
SEEDS = [int(os.environ["SIMULATION_SEED"])] if "SIMULATION_SEED" in os.environ else range(SCHEDULES)
NEVER_MS = 10**9


@dataclass
class Run:
    """A finished schedule: what was sent, what is stored, how each record ended."""

    client: Client
    broker: Broker

    def outcomes(self, key: TopicPartition) -> list[tuple[bytes, Outcome, int]]:
        found = []
        for batch, index, value in self.client.sent.get(key, []):
            part, at = batch.part_of(index)
            assert part.outcome is not None, f"record {value!r} was never settled"
            found.append((value, part.outcome, at))
        return found


def play(
    seed: int,
    faults: Faults,
    *,
    delivery_timeout_ms: int = NEVER_MS,
    records: int = 120,
    max_batch_bytes: int | None = None,
    state: ProducerState | None = None,
    start_sequence: int = 0,
    large_records: float = 0.0,
    expiration_ms: int = NEVER_MS,
    pauses_ms: tuple[int, ...] = (0, 0, 0, 1, 5, 30),
) -> Run:
    """Send `records` values to a few partitions at random times through `faults`, then let everything
    settle."""
    print(f"SIMULATION_SEED={seed}")
    rng = random.Random(seed)
    clock = Clock()
    broker = Broker(clock, rng, faults, ProducerRules(expiration_ms=expiration_ms))
    if state is not None and state.identity is not None:
        broker.next_producer_id = state.identity.producer_id + 1
    client = Client(
        clock,
        broker,
        rng,
        linger_ms=rng.choice([0, 0, 5]),
        batch_bytes=rng.choice([80, 150, 400]),
        delivery_timeout_ms=delivery_timeout_ms,
        state=state,
    )
    keys = [TopicPartition("t", index) for index in range(rng.randint(1, 3))]
    if start_sequence:
        for key in keys:
            start_at(client.state, broker.log(key), key, start_sequence)
    if max_batch_bytes is not None:
        for key in keys:
            broker.log(key).max_batch_bytes = max_batch_bytes
    at_ms = 0
    for number in range(records):
        at_ms += rng.choice(pauses_ms)
        key, value = rng.choice(keys), b"%06d" % number
        if rng.random() < large_records:
            value += b"." * 60
        clock.after(at_ms, lambda key=key, value=value: client.send(key, value))
    steps = 0
    while clock.step():
        steps += 1
        assert steps < 500_000, "the schedule does not come to an end"
    return Run(client, broker)


def start_at(state: ProducerState, log: Log, key: TopicPartition, sequence: int) -> None:
    """Make both sides believe that the producer has stored every sequence before this one."""
    identity = state.identity
    assert identity is not None
    client_side = PartitionState()
    client_side.identity, client_side.next_sequence, client_side.last_acked = identity, sequence, sequence - 1
    state._partitions[key] = client_side
    one_record = RecordBatchBuilder()
    one_record.append(0, None, b"")
    log.remember(read_batch_header(one_record.build(Compression.NONE, *identity, sequence - 1)))


def check(run: Run, *, is_uncertain_ordered: bool = True) -> dict[str, int]:
    """Every record is stored at most once, as often as its outcome says, where it says, and in order."""
    counts = {"stored": 0, "uncertain": 0, "failed": 0}
    assert run.client.accumulator.used_bytes == 0
    for key in run.client.sent:
        values = run.broker.log(key).values
        assert len(set(values)) == len(values), f"{key}: a record is stored twice"
        settled = {
            value
            for value, outcome, _ in run.outcomes(key)
            if is_uncertain_ordered or not isinstance(outcome.error, DeliveryUncertainError)
        }
        in_order = [value for value in values if value in settled]
        assert in_order == sorted(in_order), f"{key}: records are out of order"
        for value, outcome, index in run.outcomes(key):
            is_stored = value in values
            if outcome.error is None:
                counts["stored"] += 1
                assert is_stored, f"{key}: {value!r} was acknowledged and is not stored"
                if outcome.base_offset >= 0:
                    assert values[outcome.base_offset + index] == value, f"{key}: wrong offset for {value!r}"
            elif isinstance(outcome.error, DeliveryUncertainError):
                counts["uncertain"] += 1
            else:
                counts["failed"] += 1
                assert not is_stored, f"{key}: {value!r} was reported as not stored ({outcome.error})"
    return counts


ROUGH = Faults(
    cut_before=0.05,
    cut_after=0.05,
    swallow_answer=0.03,
    repeat_request=0.05,
    refuse_retriable=0.05,
    append_then_refuse=0.03,
    crash=0.02,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_with_patience_everything_is_stored_exactly_once_and_in_order(seed: int) -> None:
    counts = check(play(seed, ROUGH))
    assert counts == {"stored": 120, "uncertain": 0, "failed": 0}


@pytest.mark.parametrize("seed", SEEDS)
def test_with_deadlines_every_outcome_is_true(seed: int) -> None:
    faults = ROUGH._replace(cut_before=0.2, swallow_answer=0.1, max_delay_ms=60)
    check(play(seed, faults, delivery_timeout_ms=random.Random(seed).choice([60, 300, 1500])))


# Pauses longer than the expiry, which is longer than anything that is still under way.
EXPIRY = {
    "expiration_ms": 10_000,
    "delivery_timeout_ms": 4_000,
    "pauses_ms": (0, 0, 0, 0, 0, 1, 5, 30, 11_000),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_when_the_broker_forgets_an_idle_producer_every_outcome_is_true(seed: int) -> None:
    check(play(seed, ROUGH, **EXPIRY))


@pytest.mark.parametrize("seed", SEEDS)
def test_when_the_broker_forgets_and_no_answer_is_lost_everything_is_stored(seed: int) -> None:
    run = play(seed, Faults(repeat_request=0.1), **EXPIRY)
    assert check(run) == {"stored": 120, "uncertain": 0, "failed": 0}
    assert run.client.state.identity is not None
    assert run.client.state.identity.epoch > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_that_are_too_large_are_split_and_stored_once(seed: int) -> None:
    counts = check(play(seed, ROUGH, max_batch_bytes=100))
    assert counts == {"stored": 120, "uncertain": 0, "failed": 0}


@pytest.mark.parametrize("seed", SEEDS)
def test_records_that_are_too_large_fail_and_the_others_are_stored(seed: int) -> None:
    quiet = Faults(repeat_request=0.1)
    counts = check(play(seed, quiet, max_batch_bytes=90, large_records=0.2))
    assert counts["uncertain"] == 0
    assert 0 < counts["failed"] < 60


@pytest.mark.parametrize("seed", SEEDS)
def test_records_that_are_too_large_never_spoil_the_others_outcomes(seed: int) -> None:
    check(play(seed, ROUGH, max_batch_bytes=90, large_records=0.2))


@pytest.mark.parametrize("seed", SEEDS)
def test_after_the_last_sequence_comes_0(seed: int) -> None:
    identity = Identity(7, 3)
    state = ProducerState()
    state.set_producer_id(*identity)
    run = play(seed, ROUGH, state=state, start_sequence=MAX_SEQUENCE - 20)
    assert check(run) == {"stored": 120, "uncertain": 0, "failed": 0}
    assert all(batch.identity == identity for batches in run.client.sent.values() for batch, _, _ in batches)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_the_last_epoch_comes_a_new_producer_id(seed: int) -> None:
    state = ProducerState()
    state.set_producer_id(7, MAX_EPOCH)
    faults = ROUGH._replace(cut_before=0.2, swallow_answer=0.1)
    run = play(seed, faults, delivery_timeout_ms=200, state=state, records=400)
    # A new id cannot fence what the old one still has under way, as a new epoch does.
    check(run, is_uncertain_ordered=False)
    identity = run.client.state.identity
    assert identity is None or identity.producer_id > 7
