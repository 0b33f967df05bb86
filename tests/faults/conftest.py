"""No process outlives the test that started it."""

from collections.abc import Iterator

import pytest

from tests.processes import none_left


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    with none_left():
        yield
