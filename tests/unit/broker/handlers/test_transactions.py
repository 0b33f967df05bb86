"""What a transactional producer is answered, from its first request to the end of its transaction."""

import asyncio
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker, Clock
from tests.unit.broker.handlers.transactional import TransactionalClient, committed, transactional_batch
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.broker.coordinator.transactions import machine
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.schema import ApiKey

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
both_kinds = pytest.mark.parametrize("is_new", [False, True], ids=["version-1", "version-2"])


async def test_the_topic_of_transactions_is_made_for_the_first_transactional_id(asker: Asker) -> None:
    assert (await TransactionalClient(asker).described()).error_code == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert (await asker.ask(ApiKey.LIST_TRANSACTIONS, 1)).transaction_states == []
    await TransactionalClient(asker).begin()
    topic = asker.topic(TRANSACTIONS_TOPIC)
    assert len(topic.partitions) == asker.services.config.transaction_state_log_num_partitions == 5
    assert topic.configs["cleanup.policy"] == "compact"


@both_kinds
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
async def test_a_transaction_from_its_beginning_to_its_end(
    asker: Asker, is_new: bool, is_commit: bool
) -> None:
    await asker.create("t", 2)
    client = TransactionalClient(asker, is_new=is_new)
    await client.begin()
    before = await client.described()
    assert (before.transaction_state, before.transaction_start_time_ms, before.topics) == ("Empty", -1, [])
    assert await client.add(("t", 1), ("t", 0)) == [NONE] * 2
    held = await client.described()
    assert (held.transaction_state, held.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert (held.producer_id, held.producer_epoch) == client.pair
    assert [(topic.topic, topic.partitions) for topic in held.topics] == [("t", [0, 1])]
    epoch = client.pair.epoch
    assert await client.end(is_commit) == NONE
    assert client.pair.epoch == epoch + is_new
    state = "CompleteCommit" if is_commit else "CompleteAbort"
    await reached(client, state)
    for index in (0, 1):  # One marker each.
        assert asker.replica("t", index).log.end_offset == 1
    assert await client.add(("t", 0)) == [NONE]


async def reached(client: TransactionalClient, state: str) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await client.described()).transaction_state != state:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_an_unknown_partition_is_named_and_the_others_are_not_added(asker: Asker) -> None:
    await asker.create("t")
    client = TransactionalClient(asker)
    await client.begin()
    assert await client.add(("t", 0), ("t", 7), ("u", 0)) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert (await client.described()).transaction_state == "Empty"


async def test_several_transactions_are_added_to_and_verified_in_one_request(asker: Asker) -> None:
    await asker.create("t", 2)
    clients = [TransactionalClient(asker, name) for name in "xyz"]
    for client in clients:
        await client.begin()

    async def ask(version: int, index: int, only_verify: bool) -> list[int]:
        transactions = [
            {**client._named(), "topics": [{"name": "t", "partitions": [index]}], "verify_only": only_verify}
            for client in clients
        ]
        transactions[2]["producer_epoch"] = 7
        answer = await asker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=transactions)
        assert [held.transactional_id for held in answer.results_by_transaction] == ["x", "y", "z"]
        return [
            held.topic_results[0].results_by_partition[0].partition_error_code
            for held in answer.results_by_transaction
        ]

    absent, abortable = ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE
    assert await ask(4, 0, True) == [absent, absent, FENCED]
    assert await ask(5, 0, True) == [abortable, abortable, FENCED]
    assert await ask(5, 0, False) == [NONE, NONE, FENCED]
    assert await ask(5, 0, True) == [NONE, NONE, FENCED]
    assert await ask(5, 1, True) == [abortable, abortable, FENCED]


@pytest.mark.parametrize(("api", "version"), [("init", 3), ("add", 1), ("add_offsets", 1), ("end", 1)])
async def test_a_fenced_client_gets_the_code_that_its_version_knows(
    asker: Asker, api: str, version: int
) -> None:
    await asker.create("t")
    zombie, client = TransactionalClient(asker), TransactionalClient(asker)
    await zombie.begin()
    await client.begin()

    async def code(version: int) -> int:
        if api == "init":
            pair = {"producer_id": zombie.pair.producer_id, "producer_epoch": zombie.pair.epoch}
            return int((await zombie.begin(version, **pair)).error_code)
        if api == "add":
            return (await zombie.add(("t", 0), version=version))[0]
        if api == "add_offsets":
            return await zombie.add_offsets("g", version=version)
        return await zombie.end(version=version)

    assert await code(version) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await code(version + 1) == FENCED


async def test_a_partition_that_cannot_be_written_holds_its_transaction_back_and_the_rest_gets_its_markers(
    asker: Asker,
) -> None:
    await asker.create("t", 2)
    client, other = TransactionalClient(asker), TransactionalClient(asker, "y")
    await client.begin()
    await other.begin()
    await client.add(("t", 0), ("t", 1))
    asker.replica("t", 0).fail(OSError("the disk is gone"))
    assert await client.end() == NONE
    await until(lambda: asker.replica("t", 1).log.end_offset == 1)
    assert (await client.described()).transaction_state == "PrepareCommit"
    assert await client.end() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert await client.add(("t", 1)) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert await other.add(("t", 1)) == [NONE]


async def test_transactions_are_listed_by_state_producer_and_duration(asker: Asker, clock: Clock) -> None:
    await asker.create("t")
    clients = {name: TransactionalClient(asker, name) for name in "xyz"}
    for client in clients.values():
        await client.begin()
    await clients["x"].add(("t", 0))
    clock.now_ms += 5_000
    await clients["y"].add(("t", 0))

    async def listed(version: int = 1, **filters: Any) -> set[tuple[str, str]]:
        answer = await asker.ask(ApiKey.LIST_TRANSACTIONS, version, **filters)
        assert answer.error_code == NONE
        return {(held.transactional_id, held.transaction_state) for held in answer.transaction_states}

    ongoing = {("x", "Ongoing"), ("y", "Ongoing")}
    assert await listed(0) == {*ongoing, ("z", "Empty")}
    assert await listed(state_filters=["Ongoing", "Nonsense"]) == ongoing
    assert await listed(state_filters=["Nonsense"]) == set()
    assert await listed(producer_id_filters=[clients["z"].pair.producer_id]) == {("z", "Empty")}
    assert await listed(duration_filter=4_999) == {("x", "Ongoing")}
    assert await listed(duration_filter=5_000) == set()
    assert {name for name, _ in await listed(2, transactional_id_pattern="x|z.*")} == {"x", "z"}
    assert len(await listed(2, transactional_id_pattern="")) == 3
    answer = await asker.ask(ApiKey.LIST_TRANSACTIONS, 1, state_filters=["Nonsense", "Empty"])
    assert answer.unknown_state_filters == ["Nonsense"]


async def test_a_pattern_of_transactional_ids_that_is_no_regular_expression_is_refused(asker: Asker) -> None:
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.INVALID_REGULAR_EXPRESSION):
        await asker.ask(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="(")


async def test_a_batch_whose_partition_may_be_added_later_is_sent_again_and_the_transaction_goes_on(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The markers of the transaction before it become durable just when the coordinator has given up."""
    await asker.create("t")
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    transactions = asker.services.transactions

    async def add(*_: Any) -> None:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "add_partitions", add)
        assert (await client.produce("t")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await client.produce("t")).error_code == NONE
    assert await client.end() == NONE


def give_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each id and each partition needs more than all may hold from now on."""
    monkeypatch.setattr(machine, "_ID_BYTES", 1 << 40)
    monkeypatch.setattr(machine, "_PARTITION_BYTES", 1 << 40)


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda client: client.add(("t", 0), ("t", 1)), ErrorCode.INVALID_TXN_STATE),
        (lambda client: client.add_offsets("g", 3), ErrorCode.INVALID_TXN_STATE),
        (lambda client: client.add_offsets("g", 4), ErrorCode.TRANSACTION_ABORTABLE),
        (lambda client: client.commit_offset("g", "t", 1, 5), ErrorCode.TRANSACTION_ABORTABLE),
    ],
    ids=["partitions", "offsets-3", "offsets-4", "commit-of-offsets"],
)
async def test_a_transaction_without_memory_to_grow_can_only_be_aborted(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, ask: Any, code: ErrorCode
) -> None:
    await asker.create("t", 2)
    client = TransactionalClient(asker)
    await client.begin()
    await client.add(("t", 0))
    give_no_more_memory(monkeypatch)
    answer = await ask(client)
    assert set(answer if isinstance(answer, list) else [answer]) == {code}
    assert await client.end(is_commit=False) == NONE


async def test_a_produce_request_that_finds_no_memory_for_its_transaction_makes_it_abort(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t")
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    give_no_more_memory(monkeypatch)
    assert (await client.produce("t")).error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert (await TransactionalClient(asker, "y").begin()).error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("flags", [{"enable2_pc": True}, {"enable2_pc": True, "keep_prepared_txn": True}])
async def test_two_phase_commit_is_off_unless_it_is_enabled(asker: Asker, flags: dict[str, bool]) -> None:
    answer = await TransactionalClient(asker).begin(6, **flags)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@both_kinds
async def test_a_partition_takes_data_only_while_it_takes_part(asker: Asker, is_new: bool) -> None:
    await asker.create("t")
    client = TransactionalClient(asker, is_new=is_new)
    await client.begin()
    absent = ErrorCode.INVALID_TXN_STATE
    assert (await client.produce("t", version=9)).error_code == absent
    assert (await client.produce("t", version=11)).error_code == ErrorCode.TRANSACTION_ABORTABLE
    if not is_new:
        assert await client.add(("t", 0)) == [NONE]
    assert (await client.produce("t")).error_code == NONE
    assert (await client.produce("t", 1)).error_code == NONE
    assert [topic.topic for topic in (await client.described()).topics] == ["t"]
    assert asker.replica("t").ends.last_stable == 0
    assert await client.end() == NONE
    await reached(client, "CompleteCommit")
    assert asker.replica("t").ends.last_stable == 3
    sequence = 0 if is_new else 2
    assert (await client.produce("t", sequence, version=9)).error_code == absent


async def test_a_late_batch_of_one_transaction_is_not_stored_in_the_next(asker: Asker) -> None:
    await asker.create("t")
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    late = client.pair
    assert (await client.produce("t")).error_code == NONE
    assert await client.end() == NONE
    assert (await client.produce("t")).error_code == NONE
    present, client.pair = client.pair, late
    assert (await client.produce("t", 1)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await client.end() == FENCED
    client.pair = present
    assert asker.replica("t").log.end_offset == 3
    assert await client.end(is_commit=False) == NONE


async def test_batches_for_several_partitions_are_added_and_stored_together(asker: Asker) -> None:
    await asker.create("t", 2)
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    batch = transactional_batch(client.pair)
    request = ProduceRequest(client.name, -1, 30_000, [("t", [(0, batch), (1, batch), (7, batch)])])
    answer = await asker.call(ApiKey.PRODUCE, 12, request)
    codes = [result.error_code for result in answer[0][1]]
    assert codes == [NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [topic.partitions for topic in (await client.described()).topics] == [[0, 1]]


@both_kinds
async def test_offsets_of_a_transaction_count_from_its_commit_on_and_are_unstable_before(
    asker: Asker, is_new: bool
) -> None:
    await asker.create("t")
    client = TransactionalClient(asker, is_new=is_new)
    await client.begin()
    unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    last = -1
    for offset, is_commit in ((5, False), (7, True), (9, False)):
        if not is_new:
            assert await client.commit_offset("g", "t", offset) == ErrorCode.INVALID_TXN_STATE
            assert await client.commit_offset("g", "t", offset, 4) == ErrorCode.TRANSACTION_ABORTABLE
            assert await client.add_offsets("g") == NONE
        assert await client.commit_offset("g", "t", offset) == NONE
        assert await committed(asker, "g", "t") == (NONE, last)
        assert await committed(asker, "g", "t", require_stable=True) == unstable
        everything = [{"group_id": "g", "topics": None}]
        answer = await asker.ask(ApiKey.OFFSET_FETCH, 9, groups=everything, require_stable=True)
        (topic,) = answer.groups[0].topics
        assert [each.error_code for each in topic.partitions] == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
        assert await client.end(is_commit) == NONE
        await reached(client, "CompleteCommit" if is_commit else "CompleteAbort")
        last = offset if is_commit else last
        assert await committed(asker, "g", "t", require_stable=True) == (NONE, last)


async def test_by_id_no_unstable_offset_of_a_deleted_topic_is_returned(asker: Asker) -> None:
    await asker.create("t")
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    for is_over in (True, False):
        assert await client.commit_offset("g", "t", 5) == NONE
        if is_over:
            assert await client.end(True) == NONE
            await reached(client, "CompleteCommit")
    await asker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
    for version, topics in ((9, ["t"]), (10, [])):
        groups = [{"group_id": "g", "topics": None}]
        answer = await asker.ask(ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=True)
        assert [topic.name for topic in answer.groups[0].topics] == topics


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
async def test_offsets_of_a_transaction_that_is_ended_by_hand_count_or_are_forgotten_at_once(
    asker: Asker, is_commit: bool
) -> None:
    await asker.create("t")
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    assert await client.commit_offset("g", "t", 7) == NONE
    index = asker.services.groups.partition_of("g")
    marker = {
        "producer_id": client.pair.producer_id,
        "producer_epoch": client.pair.epoch,
        "transaction_result": is_commit,
        "topics": [{"name": OFFSETS_TOPIC, "partition_indexes": [index, index, 10_000]}],
        "coordinator_epoch": 0,
    }
    answer = await asker.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
    codes = [part.error_code for part in answer.markers[0].topics[0].partitions]
    assert codes == [NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await committed(asker, "g", "t", require_stable=True) == (NONE, 7 if is_commit else -1)


async def test_offsets_are_refused_for_a_client_or_a_member_that_is_not_the_present_one(asker: Asker) -> None:
    await asker.create("t")
    zombie, client = (TransactionalClient(asker, is_new=True) for _ in range(2))
    await zombie.begin()
    await client.begin()
    assert await zombie.commit_offset("g", "t", 5) == ErrorCode.INVALID_PRODUCER_EPOCH
    wrong = {"generation_id": 3, "member_id": "nobody"}
    assert await client.commit_offset("g", "t", 5, **wrong) == ErrorCode.ILLEGAL_GENERATION
    assert await client.commit_offset("g", "u", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await committed(asker, "g", "t", require_stable=True) == (NONE, -1)
