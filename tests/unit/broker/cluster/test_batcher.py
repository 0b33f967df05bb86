"""Work that is done together: each caller gets a result or an error, whatever the work gives."""

import asyncio
from collections.abc import Sequence

import pytest

from tidelog.broker.cluster.batcher import Batcher


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_another_number_of_results_than_callers_is_an_error_of_each(count: int) -> None:
    async def do(group: Sequence[int]) -> Sequence[int]:
        return [0] * count

    work: Batcher[int, int] = Batcher(do, asyncio.Lock())
    found = await asyncio.gather(*(work.run(number) for number in range(2)), return_exceptions=True)
    assert [type(error) for error in found] == [ValueError, ValueError]
