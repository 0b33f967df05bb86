"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: exact positions, none beyond what is durable."""

from dataclasses import replace

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.replicas.replica import Replica
from tidelog.protocol.schema import ApiKey

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def filled(asker: Asker) -> None:
    """Offsets 0 to 4 with timestamps NOW + 0, 10, 40, 20, 30."""
    await asker.create("t")
    for later in (0, 10, 40, 20, 30):
        await asker.produce("t", make_batch(b"v", timestamp_ms=NOW_MS + later))


async def deleted_before(asker: Asker, offset: int, version: int = 2) -> tuple[int, int]:
    wanted = {"partition_index": 0, "offset": offset}
    answer = await asker.ask(ApiKey.DELETE_RECORDS, version, topics=[{"name": "t", "partitions": [wanted]}])
    held = answer.topics[0].partitions[0]
    return held.error_code, held.low_watermark


async def test_minus_one_deletes_what_is_durable_though_more_is_visible(asker: Asker) -> None:
    await filled(asker)
    replica = asker.replica("t")
    replica.reconfigure(replace(replica.log.config, acks_all_durable=False))
    replica.append_as_leader(make_batch(b"v"), NOW_MS)

    class Appends:
        """Another append, between the flush for the deletion and the deletion."""

        def replica_changed(self, replica: Replica) -> None:
            replica.unwatch(self)
            replica.append_as_leader(make_batch(b"v"), NOW_MS)

    replica.watch(Appends())
    assert await deleted_before(asker, -1) == (0, 6)
    assert replica.log.end_offset == 7
