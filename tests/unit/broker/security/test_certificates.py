"""What is read of a certificate: its subject as Java's X500Principal writes it, and its expiry."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidelog.broker.security.certificates import Certificate, read

KEY = ec.generate_private_key(ec.SECP256R1())


def der(names: x509.Name, expires: datetime) -> bytes:
    builder = x509.CertificateBuilder(names, names, KEY.public_key(), 1, expires - timedelta(days=1), expires)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def subject(*attributes: tuple[x509.ObjectIdentifier, str]) -> str:
    names = x509.Name([x509.NameAttribute(identifier, value) for identifier, value in attributes])
    return read(der(names, datetime(2030, 1, 1, tzinfo=UTC))).subject


def test_the_last_name_of_the_subject_stands_first() -> None:
    named = subject(
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Berlin"),
        (NameOID.LOCALITY_NAME, "Berlin"),
        (NameOID.STREET_ADDRESS, "Straße 1"),
        (NameOID.ORGANIZATION_NAME, "Orders"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Writers"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.USER_ID, "7"),
        (NameOID.COMMON_NAME, "alice"),
    )
    assert named == "CN=alice,UID=7,DC=example,OU=Writers,O=Orders,STREET=Straße 1,L=Berlin,ST=Berlin,C=DE"


def test_an_attribute_without_a_keyword_is_written_as_its_number_and_its_bytes() -> None:
    assert subject((NameOID.EMAIL_ADDRESS, "a@b")) == "1.2.840.113549.1.9.1=#1603614062"
    assert subject((NameOID.SERIAL_NUMBER, "5")) == "2.5.4.5=#130135"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('a,b+c"d\\e<f>g;h', '\\,b\\+c\\"d\\\\e\\<f\\>g\\;h'),
        ("a=b#c", "\\=b\\#c"),
        ("a ", "\\ "),
    ],
)
def test_special_characters_are_escaped(value: str, written: str) -> None:
    assert subject((NameOID.COMMON_NAME, value)) == f"CN=a{written}"


def test_spaces_at_the_begin_and_names_of_several_attributes() -> None:
    assert subject((NameOID.COMMON_NAME, "  a b  ")) == "CN=\\ \\ a b\\ \\ "
    both = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "1")]
    )
    certificate = read(der(x509.Name([both]), datetime(2030, 1, 1, tzinfo=UTC)))
    assert sorted(certificate.subject.split("+")) == ["CN=a", "UID=1"]


@pytest.mark.parametrize("year", [1998, 2049, 2050])
def test_the_expiry_is_read_in_both_formats_of_time(year: int) -> None:
    expires = datetime(year, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert read(der(x509.Name([]), expires)) == Certificate("", expires)


@pytest.mark.parametrize("garbage", [b"", b"\x30", b"\x30\x00", b"hello", b"\x30\x84\xff\xff\xff\xff"])
def test_what_is_no_certificate_is_a_value_error(garbage: bytes) -> None:
    with pytest.raises(ValueError):
        read(garbage)
