"""Where a mirrored row comes from: the header that says so, and the order that is asked for."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.mirror.session_folder import MirrorError
from tidelog.pipeline.mirror.tail import parse_source, source_headers
from tidelog.pipeline.mirror.task import check_order
from tidelog.pipeline.offsets import Place

SOURCE = Place("orders", 0)
TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=12)


@given(TOPICS, st.integers(0, 2**31 - 1), st.lists(st.integers(0, 2**63 - 1), min_size=1))
def test_a_header_names_the_source_of_its_record(topic: str, partition: int, offsets: list[int]) -> None:
    made = source_headers(Place(topic, partition), pa.array(offsets, pa.int64())).to_pylist()
    assert [parse_source(each) for each in made] == [(Place(topic, partition), each) for each in offsets]


@pytest.mark.parametrize(
    "content", [None, b"", b"orders-0", b"orders@5", b"orders-x@5", b"orders-0@", b"\xff-0@1"]
)
def test_other_contents_name_none(content: bytes | None) -> None:
    named = parse_source(content)
    assert named is None or named[0].topic not in ("orders", "")


@pytest.mark.parametrize(
    ("offsets", "before", "allows_gaps"),
    [([5, 6, 7], None, False), ([5, 6, 7], 4, False), ([5, 9], 1, True), ([5], None, False)],
)
def test_rows_in_order_pass(offsets: list[int], before: int | None, allows_gaps: bool) -> None:
    check_order(SOURCE, np.array(offsets), before, allows_gaps=allows_gaps)


@pytest.mark.parametrize(
    ("offsets", "before", "allows_gaps", "message"),
    [
        ([5, 5], None, True, "offset 5 of orders-0 comes after 5"),
        ([6, 5], None, False, "offset 5 of orders-0 comes after 6"),
        ([5, 6], 5, True, "offset 5 of orders-0 comes after 5"),
        ([5, 7], None, False, "offset 7 of orders-0 follows 5: rows between them are missing"),
        ([5, 6], 3, False, "offset 5 of orders-0 follows 3"),
    ],
)
def test_rows_out_of_order_or_with_gaps_are_refused(
    offsets: list[int], before: int | None, allows_gaps: bool, message: str
) -> None:
    with pytest.raises(MirrorError, match=message):
        check_order(SOURCE, np.array(offsets), before, allows_gaps=allows_gaps)
