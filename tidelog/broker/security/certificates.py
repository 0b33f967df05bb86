"""What the broker reads of a certificate: its subject as Kafka writes it, and when it expires.

OpenSSL has parsed every certificate that comes here; ssl gives its subject only without the types of its
strings, which the text form of unknown attributes needs. Pure.

Source: RFC 5280 (Certificate), RFC 2253 as Java's X500Principal.getName writes it, which Kafka's
DefaultKafkaPrincipalBuilder uses.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

_CONSTRUCTED_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_ENCODINGS: Mapping[int, str] = {
    0x0C: "utf-8",  # UTF8String
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1E: "utf-16-be",  # BMPString
}
_KEYWORDS: Mapping[str, str] = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Attributes that have a keyword in RFC 2253. Others are written as their number and their bytes."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class Certificate(NamedTuple):
    """`subject` is a distinguished name such as `CN=alice,OU=orders,C=DE`."""

    subject: str
    expires: datetime


def read(der: bytes) -> Certificate:
    """The subject and the expiry of a certificate. Raises ValueError for bytes that are none."""
    try:
        ((_, certificate),) = _elements(der)
        _, signed = next(_elements(certificate))
        fields = _elements(signed)
        if next(fields)[0] == _CONSTRUCTED_VERSION:
            next(fields)  # The serial number.
        next(fields)  # The algorithm of the signature.
        next(fields)  # The issuer.
        _, validity = next(fields)
        _, subject = next(fields)
        _, (tag, not_after) = _elements(validity)
        return Certificate(_name(subject), _time(tag, not_after))
    except (StopIteration, IndexError) as error:
        raise ValueError("expected a certificate in DER") from error


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of each element in `data`."""
    position = 0
    while position < len(data):
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        yield tag, data[position : position + length]
        position += length


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        century = "19" if text >= "5" else "20"
        text = century + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _name(content: bytes) -> str:
    """The last relative name first, as RFC 2253 says."""
    relative_names = [
        "+".join(_attribute(one) for _, one in _elements(each)) for _, each in _elements(content)
    ]
    return ",".join(reversed(relative_names))


def _attribute(content: bytes) -> str:
    (_, type_), (tag, value) = _elements(content)
    identifier = _object_id(type_)
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or tag not in _ENCODINGS:
        encoded = content[2 + len(type_) :]
        return f"{keyword or identifier}=#{encoded.hex()}"
    return f"{keyword}={_escaped(value.decode(_ENCODINGS[tag], 'replace'))}"


def _object_id(content: bytes) -> str:
    numbers = [0]
    for byte in content:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    kept = escaped.strip(" ")
    if not kept:
        return "\\ " * len(escaped)
    before, after = escaped.index(kept), len(escaped) - escaped.index(kept) - len(kept)
    return "\\ " * before + kept + "\\ " * after
