"""Every list of every request is made as large as asked, and the broker's own reader takes it for that."""

import re
from typing import Any

import pytest

from faults.hostile.largest import ELEMENTS, Large, enlarged, largest_requests
from tidelog.protocol.messages.declaration import Field, version_in
from tidelog.protocol.schema import APIS, Api, ApiKey, decode_request

COUNT = 300
NEWEST = {api.key: api.max_version for api in APIS.values()}
WITH_LISTS = [api for api in APIS.values() if any(field.is_array for field in api.request.fields)]


def elements_at(large: Large) -> list[Any]:
    """What the list at the path holds, once decoded."""
    found = decode_request(large.api, large.version, large.body)
    *outer, last = large.path.split(".")
    for name in outer:
        (found,) = found[name]
    elements: list[Any] = found[last]
    return elements


def lists(fields: tuple[Field, ...], version: int, before: str = "") -> set[str]:
    found: set[str] = set()
    for field in fields:
        if field.is_array and field.tag is None and version_in(version, field.versions):
            found |= {before + field.name} | lists(field.fields, version, f"{before}{field.name}.")
    return found


@pytest.mark.parametrize("api", WITH_LISTS, ids=lambda api: api.name)
def test_a_list_has_as_many_elements_as_it_says_all_the_same_or_all_different(api: Api) -> None:
    made = set()
    for large in largest_requests("there", {api.key: api.max_version}, COUNT):
        elements = elements_at(large)
        assert len(elements) == large.elements > COUNT // 5, str(large)
        # Records are shown by their address.
        shown = {re.sub("<memory at .*?>", "records", repr(each)) for each in elements}
        assert len(shown) == (1 if large.is_repeated else large.elements), str(large)
        made.add(large.path)
    assert made == lists(api.request.fields, api.max_version)


@pytest.mark.parametrize("api", [ApiKey.DELETE_TOPICS, ApiKey.DESCRIBE_CONFIGS])
def test_the_largest_is_within_the_limit_of_a_request(api: ApiKey) -> None:
    requests = largest_requests("there", {api: NEWEST[api]}, COUNT)
    most = max((each for each in requests if each.is_repeated), key=lambda each: each.elements)
    large = enlarged(most, "there")
    assert len(elements_at(large)) > 0.99 * ELEMENTS
