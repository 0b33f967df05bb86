"""Cipher suites have IANA's names; the versions of TLS that are served follow from them."""

import ssl

import pytest

from tidelog.broker.security.cipher_suites import TLS_1_3_SUITES, openssl_names, versions
from tidelog.protocol.settings import ConfigError

BOTH = ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
    ],
)
def test_the_names_are_those_of_openssl(suite: str, name: str) -> None:
    assert openssl_names([suite]) == [name]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(name)
    assert name in {each["name"] for each in context.get_ciphers()}


def test_a_version_is_served_if_it_is_enabled_and_has_a_suite() -> None:
    of_1_2 = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    assert versions(BOTH, ()) == [*BOTH]
    assert versions(BOTH, (of_1_2,)) == ["TLSv1.2"]
    assert versions(BOTH, TLS_1_3_SUITES) == ["TLSv1.3"]
    assert versions(BOTH, (of_1_2, *TLS_1_3_SUITES)) == [*BOTH]
    assert versions(("TLSv1.3",), ()) == ["TLSv1.3"]
    with pytest.raises(ConfigError, match=r"names no suite of TLSv1\.3"):
        versions(("TLSv1.3",), (of_1_2,))


@pytest.mark.parametrize(
    ("suites", "complaint"),
    [
        (["ECDHE-RSA-AES256-GCM-SHA384"], "which is unknown: use IANA's names"),
        (["TLS_FOO"], "names 'TLS_FOO', which is unknown"),
        (["TLS_AES_256_GCM_SHA384"], "are served together, so name all of"),
    ],
)
def test_what_cannot_be_served_is_refused(suites: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        openssl_names(suites)
    assert complaint in str(caught.value)
