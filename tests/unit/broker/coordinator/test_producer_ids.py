"""Producer ids: never twice, never before their block is durable, never past int64."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.coordinator.producer_ids import (
    MAX_PRODUCER_ID,
    RETRY_BACKOFF_MS,
    ProducerIdAllocator,
    ProducerIdBlock,
    ProducerIdsExhausted,
    check_init_producer_id,
    next_block,
)
from tidelog.protocol.errors import ApiError, ErrorCode


def test_no_id_is_given_before_a_block_is_durable() -> None:
    allocator = ProducerIdAllocator(0)
    assert allocator.allocate(0) == (None, True)
    assert allocator.allocate(0) == (None, False)
    allocator.block_reserved(next_block(0))
    assert allocator.allocate(0) == (0, False)
    assert allocator.allocate(0) == (1, False)


def test_the_next_block_is_asked_for_when_a_tenth_is_left() -> None:
    allocator = ProducerIdAllocator(0)
    allocator.allocate(0)
    allocator.block_reserved(ProducerIdBlock(0, 1000))
    asked = [allocator.allocate(0) for _ in range(1000)]
    assert [allocation.producer_id for allocation in asked] == list(range(1000))
    assert [index for index, allocation in enumerate(asked) if allocation.reserve_block] == [899]
    allocator.block_reserved(ProducerIdBlock(1000, 2000))
    assert allocator.allocate(0) == (1000, False)


def test_ids_at_or_above_the_bound_were_never_issued() -> None:
    allocator = ProducerIdAllocator(3000)
    assert allocator.first_unissued(3000) == 3000
    allocator.allocate(0)
    allocator.block_reserved(ProducerIdBlock(3000, 4000))
    assert allocator.first_unissued(4000) == 3000
    allocator.allocate(0)
    assert allocator.first_unissued(4000) == 3001


@pytest.mark.parametrize(
    ("reserved_end", "following", "first"),
    [
        (1000, None, 900),
        (2000, ProducerIdBlock(1000, 2000), 900),
        (3000, ProducerIdBlock(2000, 3000), 2000),  # Between them is a block of another broker,
        (2000, None, 2000),  # or above them,
        (5000, ProducerIdBlock(2000, 3000), 5000),
    ],
)
def test_ids_in_blocks_of_other_brokers_may_have_been_issued(
    reserved_end: int, following: ProducerIdBlock | None, first: int
) -> None:
    allocator = ProducerIdAllocator(0)
    allocator.allocate(0)
    allocator.block_reserved(ProducerIdBlock(0, 1000))
    for _ in range(900):
        allocator.allocate(0)
    if following is not None:
        allocator.block_reserved(following)
    assert allocator.first_unissued(reserved_end) == first


def test_a_failed_reservation_is_tried_again_after_the_back_off() -> None:
    allocator = ProducerIdAllocator(0)
    assert allocator.allocate(1000).reserve_block
    allocator.block_failed(1000)
    assert allocator.allocate(1000 + RETRY_BACKOFF_MS - 1) == (None, False)
    assert allocator.allocate(1000 + RETRY_BACKOFF_MS) == (None, True)


def test_a_block_that_goes_back_is_refused() -> None:
    allocator = ProducerIdAllocator(5000)
    with pytest.raises(ValueError, match="an older state"):
        allocator.block_reserved(ProducerIdBlock(4000, 5000))


def test_exhausting_int64_is_an_error_and_not_a_wrap() -> None:
    assert next_block(MAX_PRODUCER_ID - 1000).end == MAX_PRODUCER_ID
    with pytest.raises(ProducerIdsExhausted):
        next_block(MAX_PRODUCER_ID - 999)


@given(
    st.lists(st.sampled_from(["allocate", "reserved", "failed", "crash"]), max_size=200), st.integers(1, 20)
)
def test_ids_rise_strictly_over_any_history(steps: list[str], size: int) -> None:
    durable = 0
    allocator = ProducerIdAllocator(durable)
    reserving = False
    issued = [-1]
    for step in steps:
        if step == "allocate":
            allocation = allocator.allocate(10**9)
            if allocation.producer_id is not None:
                assert issued[-1] < allocation.producer_id < durable
                issued.append(allocation.producer_id)
                assert allocator.first_unissued(durable) == allocation.producer_id + 1
            assert not (allocation.reserve_block and reserving)
            reserving = reserving or allocation.reserve_block
        elif step == "crash":
            allocator, reserving = ProducerIdAllocator(durable), False
        elif reserving:
            reserving = False
            if step == "failed":
                allocator.block_failed(0)
            else:
                block = next_block(durable, size)
                durable = block.end
                allocator.block_reserved(block)


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "producer_epoch", "code"),
    [
        ("", -1, -1, ErrorCode.INVALID_REQUEST),
        (None, 5, -1, ErrorCode.INVALID_REQUEST),
        (None, -1, 5, ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_that_no_state_could_make_right(
    transactional_id: str | None, producer_id: int, producer_epoch: int, code: ErrorCode
) -> None:
    with pytest.raises(ApiError, check=lambda error: error.code == code):
        check_init_producer_id(transactional_id, producer_id, producer_epoch)


def test_id_and_epoch_may_be_given_together_or_not_at_all() -> None:
    check_init_producer_id(None, -1, -1)
    check_init_producer_id(None, 7, 3)
    check_init_producer_id("t", 7, 3)
