"""Values for any message in any version, drawn from its declaration, for property and conformance tests."""

from collections.abc import Mapping
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import Field, Message, version_in
from tidelog.protocol.schema import APIS, ApiKey

MESSAGES = [(key, kind) for key in APIS for kind in ("request", "response")]
MESSAGE_IDS = [f"{APIS[key].name}-{kind}" for key, kind in MESSAGES]
KAFKA_APIS = [key for key in APIS if key is not ApiKey.ASK_CONSOLE]
"""Those that are not Tidelog's own, so that Kafka's other implementations know them."""


def versions_of(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def layouts_of(key: ApiKey, kind: str) -> list[int]:
    """One version of each layout of the message: versions of one layout differ in their number alone."""
    message = message_of(key, kind)
    return list(
        {
            (version_in(version, message.flexible), _layout_of(message.fields, version)): version
            for version in versions_of(key)
        }.values()
    )


def _layout_of(fields: tuple[Field, ...], version: int) -> tuple[object, ...]:
    return tuple(
        (field.name, version_in(version, field.nullable), _layout_of(field.fields, version))
        for field in fields
        if version_in(version, field.versions)
    )


# All messages share the examples that the profile grants to one test.
FEWER_EXAMPLES = settings(max_examples=max(2, settings().max_examples // 20))

_SCALARS: Mapping[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=200),
    "uuid": st.uuids(allow_nil=True),
}
_ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode])


def message_of(key: int, kind: str) -> Message:
    api = APIS[key]  # type: ignore[index]
    return api.request if kind == "request" else api.response


def values_of(
    fields: tuple[Field, ...], version: int, special: Mapping[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with every field that the version has. `special` replaces the strategy of fields by name."""
    return st.fixed_dictionaries(
        {f.name: _value_of(f, version, special) for f in fields if version_in(version, f.versions)}
    )


def _value_of(
    field: Field, version: int, special: Mapping[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Any]:
    if field.name in special:
        value = special[field.name]
    elif field.name.endswith("error_code"):
        value = _ERROR_CODES
    elif field.element_type == "struct":
        value = values_of(field.fields, version, special)
    else:
        value = _SCALARS[field.element_type]
    if field.is_array:
        value = st.lists(value, max_size=3)
    return st.none() | value if version_in(version, field.nullable) else value


def present(fields: tuple[Field, ...], version: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values as plain dicts, without the fields that the version lacks."""
    return {
        field.name: _present_value(field, version, values[field.name])
        for field in fields
        if version_in(version, field.versions)
    }


def _present_value(field: Field, version: int, value: Any) -> Any:
    if value is None or field.element_type != "struct":
        return value
    if field.is_array:
        return [present(field.fields, version, element) for element in value]
    return present(field.fields, version, value)
