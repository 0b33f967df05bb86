"""The settings of security: names, defaults and the meaning of each.

Owns `SecuritySettings`, a part of the table of a broker's settings (`broker_config`). Pure.

Source: Kafka's SslConfigs and BrokerSecurityConfigs, KIP-651 (PEM).
"""

from dataclasses import dataclass
from functools import partial

from tidelog.broker.configuration.sasl_settings import SaslSettings
from tidelog.protocol.settings import ConfigError
from tidelog.protocol.settings import setting as _setting

_listener_setting = partial(_setting, per_listener=True)
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NO_CLIENT_CERTIFICATE = "none"
TLS_1_2 = "TLSv1.2"
TLS_1_3 = "TLSv1.3"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SecuritySettings(SaslSettings):
    """Part of `BrokerConfig`, which checks the values and has the generated methods."""

    authorizer_class_name: str = _setting(
        "",
        f"What decides by ACLs which requests are allowed: {STANDARD_AUTHORIZER}, which stands for this "
        "broker's own authorizer. Empty: everything is allowed to everyone.",
        choices=("", STANDARD_AUTHORIZER),
    )
    super_users: str = _setting(
        "",
        "Principals that may do everything, separated by semicolons, for example User:admin;User:operator.",
    )
    allow_everyone_if_no_acl_found: bool = _setting(
        False, "With an authorizer: whether everyone may use a resource without ACLs."
    )

    ssl_keystore_type: str = _listener_setting(
        "PEM", "Format of the broker's certificate and key. The only one is PEM.", choices=("PEM",)
    )
    ssl_keystore_location: str = _listener_setting(
        "",
        "PEM file with the broker's private key and its certificate chain, the broker's own certificate "
        "first. A new file is used without a restart.",
    )
    ssl_keystore_certificate_chain: str = _listener_setting(
        "", "The broker's certificate chain as PEM text, in place of ssl.keystore.location."
    )
    ssl_keystore_key: str = _listener_setting(
        "",
        "The broker's private key as PEM text (PKCS#8), beside ssl.keystore.certificate.chain.",
        secret=True,
    )
    ssl_key_password: str = _listener_setting(
        "", "Password of the private key. Empty: the key is not encrypted.", secret=True
    )
    ssl_truststore_type: str = _listener_setting(
        "PEM", "Format of the trusted certificates. The only one is PEM.", choices=("PEM",)
    )
    ssl_truststore_location: str = _listener_setting(
        "",
        "PEM file with the certificates of the authorities that clients' certificates are checked against. A "
        "new file is used without a restart.",
    )
    ssl_truststore_certificates: str = _listener_setting(
        "", "The trusted certificates as PEM text, in place of ssl.truststore.location."
    )
    ssl_client_auth: str = _listener_setting(
        NO_CLIENT_CERTIFICATE,
        "Whether clients present a certificate: none, requested or required. A listener with SASL_SSL uses "
        "only a value that is set for it (listener.name.NAME.ssl.client.auth).",
        choices=(NO_CLIENT_CERTIFICATE, "requested", "required"),
    )
    ssl_enabled_protocols: tuple[str, ...] = _listener_setting(
        (TLS_1_2, TLS_1_3), "TLS versions that clients may use.", choices=(TLS_1_2, TLS_1_3)
    )
    ssl_cipher_suites: tuple[str, ...] = _listener_setting(
        (),
        "Cipher suites that clients may use, by their IANA names, separated by commas. Empty: all that "
        "OpenSSL regards as secure. Those of TLSv1.3 must be named together or not at all.",
    )
    ssl_principal_mapping_rules: str = _listener_setting(
        "DEFAULT",
        "How the subject of a client's certificate becomes the name of its user: rules separated by commas, "
        "each RULE:pattern/replacement/, RULE:pattern/replacement/L (lower case), /U (upper case) or DEFAULT "
        "(the whole subject). The first rule whose pattern matches counts.",
    )

    @property
    def super_user_names(self) -> tuple[str, ...]:
        """The principals of `super_users`. Raises ConfigError for one that is none."""
        names = tuple(each.strip() for each in self.super_users.split(";") if each.strip())
        for name in names:
            kind, _, rest = name.partition(":")
            if not kind or not rest:
                raise ConfigError(
                    "super.users: expected principals as Type:name, separated by semicolons, for example "
                    f"User:admin;User:operator, got {name!r}"
                )
        return names
