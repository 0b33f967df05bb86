"""Processes that die and come back with a saved session, on failing networks: everything is stored once.

A process sends its input, saves its position and session once all before is stored, and is killed at random.
Its requests may arrive long after its death. Each schedule is drawn from its seed alone; see
test_exactly_once for how to replay one.
"""

import random

import pytest

from tests.simulation.client_shell import Client
from tests.simulation.network import Broker, Clock, Faults
from tests.simulation.test_exactly_once import NEVER_MS, ROUGH, SEEDS
from tidelog.broker.storage.producer_state import ProducerRules
from tidelog.client import SessionPartition, TopicPartition
from tidelog.client.producer.batch import Identity, ProducerBatch
from tidelog.client.producer.session import found_in_batches, found_in_entry
from tidelog.client.producer.state import ProducerState
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import RecordBatchBuilder, read_batch_header
from tidelog.protocol.sequences import decrement_sequence, increment_sequence
from tidelog.protocol.types import MAX_SEQUENCE

RECORDS = 150
IDENTITY = Identity(0, 0)
TICK_MS = 15


class Application:
    """Lives that follow each other; only `position` and what follows from it outlives one."""

    def __init__(self, clock: Clock, broker: Broker, rng: random.Random, start: int, most_kills: int) -> None:
        self.clock, self.broker, self.rng, self.start = clock, broker, rng, start
        self.keys = [TopicPartition("t", index) for index in range(rng.randint(1, 3))]
        self.input = [(rng.choice(self.keys), b"%06d" % number) for number in range(RECORDS)]
        self.position = 0
        self.kills_left = most_kills
        self.ends = 0
        self.skipped = 0
        self.gave_up = 0

    def saved(self, key: TopicPartition) -> SessionPartition:
        before = sum(1 for each, _ in self.input[: self.position] if each == key)
        return SessionPartition(IDENTITY.epoch, increment_sequence(self.start, before))

    def live(self) -> None:
        """A process starts: it asks each partition, once what is there is on disk."""
        state = ProducerState()
        state.is_session = True
        state.set_producer_id(*IDENTITY)
        to_skip: dict[TopicPartition, int] = {}
        for key in self.keys:
            if not self.broker.is_on_disk(key):
                self.clock.after(5, self.live)
                return
            entry = self.broker.log(key).states.entry(IDENTITY.producer_id)
            if entry is None:
                found = found_in_batches(IDENTITY.producer_id, self.saved(key), (), starts_anew=True)
            else:
                found = found_in_entry(key, self.saved(key), entry.batches[-1].last_sequence)
            state.resume(key, Identity(IDENTITY.producer_id, found.producer_epoch), found.next_sequence)
            to_skip[key] = found.record_count
        client = Client(
            self.clock,
            self.broker,
            self.rng,
            linger_ms=self.rng.choice([0, 0, 5]),
            batch_bytes=self.rng.choice([80, 150, 400]),
            delivery_timeout_ms=NEVER_MS,
            state=state,
        )
        self.work(client, to_skip, self.position)

    def work(self, client: Client, to_skip: dict[TopicPartition, int], sent: int) -> None:
        """Save what can be saved, send a little more, perhaps die; then again."""
        if client.fatal_error is not None or (self.kills_left and self.rng.random() < 0.1):
            self.kills_left -= client.fatal_error is None
            self.gave_up += client.fatal_error is not None
            self.ends += 1
            client.kill()
            self.clock.after(self.rng.randint(1, 300), self.live)
            return
        if all(self.is_stored(batch, index) for own in client.sent.values() for batch, index, _ in own):
            self.position = sent
            if sent == RECORDS:
                return
        for key, value in self.input[sent : sent + self.rng.randint(0, 8)]:
            sent += 1
            if to_skip[key]:
                to_skip[key] -= 1
                self.skipped += 1
            else:
                client.send(key, value)
        self.clock.after(TICK_MS, lambda: self.work(client, to_skip, sent))

    @staticmethod
    def is_stored(batch: ProducerBatch, index: int) -> bool:
        part, _ = batch.part_of(index)
        return part.outcome is not None and part.outcome.error is None


def play(seed: int, faults: Faults, *, start: int = 0, most_kills: int = 8) -> Application:
    print(f"SIMULATION_SEED={seed}")
    rng, clock = random.Random(seed), Clock()
    broker = Broker(clock, rng, faults, ProducerRules(expiration_ms=NEVER_MS))
    broker.next_producer_id = IDENTITY.producer_id + 1
    application = Application(clock, broker, rng, start, most_kills)
    for key in application.keys if start else ():
        one_record = RecordBatchBuilder()
        one_record.append(0, None, b"")
        before = one_record.build(Compression.NONE, *IDENTITY, decrement_sequence(start, 1))
        broker.log(key).remember(read_batch_header(before))
    application.live()
    steps = 0
    while clock.step():
        steps += 1
        assert steps < 500_000, "the schedule does not come to an end"
    return application


def check(application: Application) -> None:
    assert application.position == RECORDS
    assert not application.gave_up, "a process ended although nobody killed it"
    for key in application.keys:
        expected = [value for each, value in application.input if each == key]
        assert application.broker.log(key).values == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_killed_at_random_stores_its_input_exactly_once_and_in_order(seed: int) -> None:
    check(play(seed, ROUGH))


@pytest.mark.parametrize("seed", SEEDS)
def test_ghosts_of_dead_processes_take_nothing_from_their_successors(seed: int) -> None:
    check(play(seed, Faults(cut_before=0.1, max_delay_ms=80, max_ghost_delay_ms=600), most_kills=20))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_goes_round_the_end_of_the_numbers(seed: int) -> None:
    check(play(seed, ROUGH, start=MAX_SEQUENCE - 20))


def test_the_schedules_kill_and_skip() -> None:
    played = [play(seed, ROUGH) for seed in range(10)]
    assert sum(each.ends for each in played) > 20
    assert sum(each.skipped for each in played) > 20
