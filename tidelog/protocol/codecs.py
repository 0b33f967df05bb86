"""The codec of one message in one version: what `protocol.emitter` writes for it, when it is first used.

Invariants: for any bytes decoding raises only ProtocolError. A short message is never read in steps.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from tidelog.protocol.emitter import emit_decoder, emit_encoder, has_records, may_be_long
from tidelog.protocol.messages.declaration import Message
from tidelog.protocol.steps import ELEMENTS_PER_STEP
from tidelog.protocol.types import Buffer


class Codec:
    """One message in one version.

    `max_elements` limits the array elements and tagged fields of one body, and so the cost of a peer's bytes.
    """

    def __init__(self, message: Message, version: int, max_elements: int, *, whole: bool = True) -> None:
        """`whole`: bytes after the last field are an error."""
        self.label = f"{message.name} version {version}"
        self._message = message
        self._version = version
        self._max_elements = max_elements
        self._whole = whole
        self._may_be_long = may_be_long(message, version)
        self._has_records = has_records(message, version)
        self._take = memoryview if self._has_records else bytes

    def decode(self, body: Buffer) -> Any:
        """The body as `protocol.values`; records are slices of `body`. Raises ProtocolError with the path of
        the wrong field."""
        return self._decode(self._take(body), self._max_elements, self._whole)

    def decode_steps(self, body: Buffer) -> Any:
        """`decode` in steps, or its result if there can be only one step.

        A body with records must not change until the last step. Any other is copied first.
        """
        data = self._take(body)
        if len(data) < ELEMENTS_PER_STEP or not self._may_be_long:  # An element takes a byte or more.
            return self._decode(data, self._max_elements, self._whole)
        return self._decode_steps(data, self._max_elements, self._whole)

    def encode(self, values: Mapping[str, object]) -> bytes:
        """The body's bytes. Raises ProtocolError for a wrong value, TypeError for an unknown name."""
        data: bytes = b"".join(self.encode_buffers(values)) if self._has_records else self._encode(values)
        return data

    def encode_buffers(self, values: Mapping[str, object]) -> list[Buffer]:
        """The body of a message with records, as buffers to write in order.

        In `values`, records are one buffer or several; they are not copied. Raises as `encode` does.
        """
        buffers: list[Buffer] = self._encode(values)
        return buffers

    def encode_steps(self, values: Mapping[str, object]) -> Any:
        """`encode` in steps, or its result if there can be only one step. Of a message with records it is
        that of `encode_buffers`."""
        return (self._encode_steps if self._may_be_long else self._encode)(values)

    @cached_property
    def _decode(self) -> Any:
        return emit_decoder(self._message, self._version, in_steps=False)

    @cached_property
    def _decode_steps(self) -> Any:
        return emit_decoder(self._message, self._version, in_steps=True)

    @cached_property
    def _encode(self) -> Any:
        return emit_encoder(self._message, self._version, in_steps=False)

    @cached_property
    def _encode_steps(self) -> Any:
        return emit_encoder(self._message, self._version, in_steps=True)
