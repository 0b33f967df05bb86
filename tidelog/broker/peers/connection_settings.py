"""How this broker connects to others: the security of the inter-broker listener, and its user there.

Owns the translation of the broker's settings into those of a client. Invariants: the user comes from
`sasl.jaas.config`, as in Kafka, or else is the one that all brokers of the cluster are to each other
(`security.broker_user`); the certificate that this broker presents is the listener's own, and the authorities
that it trusts are those that the listener trusts. Without any, it trusts the listener's own certificate only:
that of brokers that share a file.

Source: Kafka's ChannelBuilders.serverChannelBuilder and clientChannelBuilder, KIP-103.
"""

import ssl
from typing import Any

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.listeners import ListenerConfig
from tidelog.broker.security.broker_user import BROKER_USER
from tidelog.protocol.scram import ScramMechanism
from tidelog.protocol.settings import ConfigError
from tidelog.wire.cluster_config import ClusterConfig, keywords_from_options
from tidelog.wire.security.tls import create_ssl_context

REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 5_000
_SCRAM = tuple(each.sasl_name for each in ScramMechanism)


def connection_settings(config: BrokerConfig, password: str) -> ClusterConfig:
    """`password`: of BROKER_USER. Raises ConfigError for settings that do not suffice, or that contradict
    each other, OSError for a certificate that cannot be used."""
    listener = config.inter_broker_listener
    options = {"security.protocol": str(listener.security_protocol)}
    keywords: dict[str, Any] = {}
    if listener.security_protocol.has_tls:
        keywords["ssl_context"] = _tls(config.of_listener(listener.name), listener)
    if listener.security_protocol.has_sasl:
        options |= _sasl(config, listener, password)
    return ClusterConfig(
        client_id=f"broker-{config.node_id}",
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        **keywords_from_options(options),
        **keywords,
    )


def _tls(own: BrokerConfig, listener: ListenerConfig) -> ssl.SSLContext:
    if own.ssl_truststore_certificates or not own.ssl_keystore_location:
        raise ConfigError(
            f"the inter-broker listener {listener.name} needs ssl.keystore.location, and the authorities of "
            "other brokers in ssl.truststore.location: this broker connects with files, not with PEM text"
        )
    trusted, certificate = own.ssl_truststore_location, own.ssl_keystore_location
    context = create_ssl_context(
        cafile=trusted or certificate, certfile=certificate, password=own.ssl_key_password
    )
    if not trusted:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _sasl(config: BrokerConfig, listener: ListenerConfig, password: str) -> dict[str, str]:
    mechanism = config.sasl_mechanism_inter_broker_protocol
    own = config.of_listener(listener.name, mechanism)
    if own.sasl_jaas_config:
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": own.sasl_jaas_config}
    enabled = [each for each in own.sasl_enabled_mechanisms if each in _SCRAM]
    if not enabled:
        raise ConfigError(
            f"the inter-broker listener {listener.name} has no mechanism of SCRAM, so it needs a user"
            f" for other brokers: set sasl.mechanism.inter.broker.protocol and sasl.jaas.config, or let "
            f"sasl.enabled.mechanisms have {_SCRAM[-1]}"
        )
    return {
        "sasl.mechanism": mechanism if mechanism in enabled else enabled[0],
        "sasl.plain.username": BROKER_USER,
        "sasl.plain.password": password,
    }
