"""`ssl.cipher.suites`: from Kafka's names to the settings of OpenSSL.

Python cannot choose among the suites of TLSv1.3, so they are served all or none. As in Kafka, TLSv1.3 is
served if a suite of it is named, and TLSv1.2 likewise. Pure. Source: IANA's registry of TLS parameters.
"""

import re
from collections.abc import Collection
from typing import Final

from tidelog.broker.configuration.security_settings import TLS_1_2, TLS_1_3
from tidelog.protocol.settings import ConfigError

SETTING: Final = "ssl.cipher.suites"
TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_TLS_1_2_SUITE = re.compile(
    r"TLS_(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_"
    r"(?:AES_(128|256)_(GCM|CBC)_(SHA|SHA256|SHA384)|(CHACHA20_POLY1305)_SHA256)"
)


def openssl_names(suites: Collection[str]) -> list[str]:
    """OpenSSL's names of those suites that are TLSv1.2's. Raises ConfigError for unknown names."""
    of_1_3 = [suite for suite in suites if suite in TLS_1_3_SUITES]
    if of_1_3 and len(set(of_1_3)) < len(TLS_1_3_SUITES):
        raise ConfigError(
            f"{SETTING} names {', '.join(of_1_3)}: the suites of {TLS_1_3} are served together, so name all "
            f"of {', '.join(TLS_1_3_SUITES)}, or none of them for {TLS_1_2} alone"
        )
    return [_openssl_name(suite) for suite in suites if suite not in TLS_1_3_SUITES]


def versions(enabled: Collection[str], suites: Collection[str]) -> list[str]:
    """The TLS versions that are enabled and have a suite. Raises ConfigError if there is none."""
    has_suites = {
        TLS_1_2: not suites or not set(suites) <= set(TLS_1_3_SUITES),
        TLS_1_3: not suites or bool(set(suites) & set(TLS_1_3_SUITES)),
    }
    served = [version for version in (TLS_1_2, TLS_1_3) if version in enabled and has_suites[version]]
    if not served:
        raise ConfigError(
            f"{SETTING} names no suite of {', '.join(enabled) or 'any version'}, which ssl.enabled.protocols "
            "allows: no client could connect"
        )
    return served


def _openssl_name(suite: str) -> str:
    match = _TLS_1_2_SUITE.fullmatch(suite)
    if match is None:
        raise ConfigError(
            f"{SETTING} names {suite!r}, which is unknown: use IANA's names, such as "
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        )
    exchange, bits, mode, digest, chacha = match.groups()
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    if chacha:
        return prefix + "CHACHA20-POLY1305"
    return f"{prefix}AES{bits}-GCM-{digest}" if mode == "GCM" else f"{prefix}AES{bits}-{digest}"
