"""kio as an independent oracle of request and response headers, and of the error table."""

import io
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

from tests.property.messages import KAFKA_APIS, versions_of
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_frame,
    encode_response_frame,
    request_header_version,
)
from tidelog.protocol.schema import ApiKey

VERSIONS = [(key, version) for key in KAFKA_APIS for version in versions_of(key)]
KIO_REQUEST_HEADERS: Mapping[int, Any] = {1: KioRequestHeaderV1, 2: KioRequestHeaderV2}


def test_headers_are_kio_s() -> None:
    for key, version in VERSIONS:
        header_type = load_request_schema(key, version).__header_schema__
        assert header_type is KIO_REQUEST_HEADERS[request_header_version(key, version)], (
            f"{key.name} {version}"
        )
        frame = b"".join(encode_request_frame(key, version, 77, "cli", b"body"))
        header, size = entity_reader(header_type)(frame, 4)
        assert header == header_type(
            request_api_key=i16(key),
            request_api_version=i16(version),
            correlation_id=i32(77),
            client_id="cli",
        )
        assert frame[4 + size :] == b"body", f"{key.name} {version}"

        header_type = load_response_schema(key, version).__header_schema__
        frame = b"".join(encode_response_frame(key, version, 77, b"body"))
        header, size = entity_reader(header_type)(frame, 4)
        assert header == header_type(correlation_id=i32(77)), f"{key.name} {version}"
        assert frame[4 + size :] == b"body", f"{key.name} {version}"
        assert decode_response_header(key, version, frame[4:]) == (77, size), f"{key.name} {version}"


@given(
    client_id=st.none() | st.text(max_size=40),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    key_and_version=st.sampled_from(VERSIONS),
)
def test_a_header_that_kio_writes_is_read(
    client_id: str | None, correlation_id: int, key_and_version: tuple[ApiKey, int]
) -> None:
    key, version = key_and_version
    header_type = KIO_REQUEST_HEADERS[request_header_version(key, version)]
    written = io.BytesIO()
    write: Any = entity_writer(header_type)
    write(
        written,
        header_type(
            request_api_key=i16(key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        ),
    )
    header, start = decode_request_header(memoryview(written.getvalue() + b"body"))
    assert header == RequestHeader(key, version, correlation_id, client_id)
    assert start == len(written.getvalue())


def test_the_error_table_has_kafka_s_numbers_names_and_retriable_codes() -> None:
    theirs = {int(code): (code.name.upper(), code.retriable) for code in KioErrorCode}
    ours = {int(code): (code.name, code.retriable) for code in ErrorCode}
    assert ours == theirs
