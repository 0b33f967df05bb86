"""What decoding returns: attributes and items of every declared field."""

import copy
from collections.abc import Mapping

import pytest

from tidelog.protocol.schema import ApiKey, decode_request, encode_request
from tidelog.protocol.values import values_class


def test_values_are_read_by_attribute_and_as_a_mapping() -> None:
    values = {"key": "g", "key_type": 1, "coordinator_keys": []}
    request = decode_request(ApiKey.FIND_COORDINATOR, 3, encode_request(ApiKey.FIND_COORDINATOR, 3, values))
    assert isinstance(request, Mapping)
    assert (request.key, request["key_type"], len(request)) == ("g", 1, 3)
    assert dict(request) == {**request} == values == request
    assert request != {**values, "key": "h"}
    assert copy.deepcopy(request) == request
    assert repr(request) == "FindCoordinatorRequest(key='g', key_type=1, coordinator_keys=[])"


def test_values_have_no_other_names_than_those_declared() -> None:
    request = decode_request(ApiKey.FIND_COORDINATOR, 3, encode_request(ApiKey.FIND_COORDINATOR, 3, {}))
    with pytest.raises(KeyError):
        request["keys"]
    with pytest.raises(AttributeError):
        request.kee = "typo"


def test_a_struct_has_one_class() -> None:
    assert values_class("A.b", ("c",)) is values_class("A.b", ("c",))
    assert not values_class("A.b", ())()
