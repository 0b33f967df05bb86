"""Kafka's properties of security, as settings of this client: files and options that Kafka's programs use.

Owns: the names of Kafka's properties that differ from the client's own, the language of `sasl.jaas.config`,
and that of a properties file. Invariants: pure; a property that cannot have its effect here is an error that
says what to do; no error has a value that may be secret.
Source: Kafka's SslConfigs, SaslConfigs, JaasConfig; java.util.Properties for files.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.protocol.settings import ConfigError

_JAAS: Final = "sasl.jaas.config"
_CHECK: Final = "ssl.endpoint.identification.algorithm"
_HANDLER: Final = "sasl.login.callback.handler.class"
_CREDENTIALS: Final = "sasl.oauthbearer.client.credentials.client."
_OTHER_NAMES: Final = {
    "ssl.truststore.location": "ssl.cafile",
    "ssl.keystore.location": "ssl.certfile",
    "ssl.key.password": "ssl.password",
    "socket.connection.setup.timeout.ms": "connect.timeout.ms",
}
_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")
_REFUSED: Final = {
    "ssl.truststore.password": "a PEM file of certificates has no password",
    "ssl.truststore.certificates": "write them to a file and give ssl.truststore.location",
    "ssl.keystore.password": "the password of a PEM key is ssl.key.password",
    "ssl.keystore.key": "write key and certificates to one file and give ssl.keystore.location",
    "ssl.keystore.certificate.chain": "write key and certificates to one file and give ssl.keystore.location",
    "sasl.kerberos.service.name": "GSSAPI is not supported. Use SCRAM-SHA-512 or OAUTHBEARER",
}
PROPERTIES: Final = frozenset({_JAAS, _CHECK, _HANDLER, *_OTHER_NAMES, *_TYPES, *_REFUSED})
"""The names that `to_settings` replaces or refuses."""

_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_OPTIONS: Final = {
    "username": "sasl.plain.username",
    "password": "sasl.plain.password",
    "clientId": f"{_CREDENTIALS}id",
    "clientSecret": f"{_CREDENTIALS}secret",
    "scope": "sasl.oauthbearer.scope",
}
_TOKEN: Final = re.compile(
    r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([=;])|([^\s"'=;]+))""", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def to_settings(given: Mapping[str, str]) -> dict[str, str]:
    """`given` with the client's own names (`ssl.cafile`) for Kafka's properties. Other names stay.

    Raises ConfigError.
    """
    settings = {name: text for name, text in given.items() if name not in PROPERTIES}
    for name, text in given.items():
        if name in _REFUSED:
            raise ConfigError(f"{name} is not supported: {_REFUSED[name]}")
        if name in _TYPES and text.strip().upper() != "PEM":
            raise ConfigError(
                f"{name}: expected PEM, got {text!r}. `keytool -exportcert -rfc` and `openssl pkcs12` convert"
                " a keystore of Java"
            )
        if name == _CHECK:
            settings["ssl.check.hostname"] = _checks_host(text)
        elif name == _HANDLER and not text.strip().endswith(".OAuthBearerLoginCallbackHandler"):
            raise ConfigError(
                f"{name}: a class of Java cannot be used. Give sasl.oauthbearer.token.endpoint.url, or in"
                " Python sasl_oauth_token_provider"
            )
        elif name in _OTHER_NAMES and text:
            settings[_OTHER_NAMES[name]] = text
    if given.get(_JAAS):
        settings |= _read_jaas(given[_JAAS], given.get("sasl.mechanism"))
    return settings


def _checks_host(text: str) -> str:
    word = text.strip().lower()
    if word not in ("https", ""):
        raise ConfigError(f"{_CHECK}: expected https, or empty for no check of the host's name, got {text!r}")
    return "true" if word else "false"


def _read_jaas(text: str, mechanism: str | None) -> dict[str, str]:
    """The settings in `MODULE required NAME="VALUE" ...;`."""
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[-1] != ";" or tokens[1].lower() != "required" or (len(tokens) - 3) % 3:
        raise _malformed()
    module = tokens[0].rpartition(".")[2]
    if module not in _MODULES:
        raise ConfigError(f"{_JAAS} has an unknown module; known are {', '.join(_MODULES)}")
    if mechanism is not None and mechanism not in _MODULES[module]:
        raise ConfigError(f"{_JAAS} has a {module}, which does not fit sasl.mechanism={mechanism}")
    settings = {}
    for at in range(2, len(tokens) - 1, 3):
        name, equals, value = tokens[at : at + 3]
        if equals != "=" or value in ("=", ";"):
            raise _malformed()
        if name not in _OPTIONS:
            raise ConfigError(f"{_JAAS} has an unknown option; known are {', '.join(_OPTIONS)}")
        settings[_OPTIONS[name]] = value
    return settings


def _tokens(text: str) -> Iterator[str]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _malformed()
        at = found.end()
        double, single, sign, word = found.groups()
        quoted = double if double is not None else single
        yield _ESCAPE.sub(_unescaped, quoted) if quoted is not None else sign or word


def _malformed() -> ConfigError:
    return ConfigError(
        f"{_JAAS} is malformed: expected for example org.apache.kafka.common.security.scram.ScramLoginModule"
        ' required username="NAME" password="PASSWORD";'
    )


def parse_properties(text: str) -> dict[str, str]:
    """The properties of a file as java.util.Properties writes it.

    `#` and `!` begin a comment, a backslash at the end of a line continues it. Raises ConfigError, which
    names the line and not what is in it.
    """
    found = {}
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip()
        match = re.match(r"((?:\\.|[^\\\s=:])+)\s*[=:\s]\s*(.*)", line, re.DOTALL)
        if match is None:
            raise ConfigError(f"line {number}: expected NAME=VALUE")
        name, value = (_ESCAPE.sub(_unescaped, each) for each in match.groups())
        found[name] = value
    return found


def _unescaped(found: re.Match[str]) -> str:
    code = found.group(1)
    return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)
