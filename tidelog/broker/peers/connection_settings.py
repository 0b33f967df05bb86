"""How this broker connects to others: the security of the inter-broker listener, and its user there.

Owns the translation of the broker's settings into those of a client. Invariants: the user comes from
`sasl.jaas.config`, the certificate that this broker presents is the listener's own, and the authorities that
it trusts are those that the listener trusts, as in Kafka.

Source: Kafka's ChannelBuilders.serverChannelBuilder and clientChannelBuilder, KIP-103.
"""

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.protocol.settings import ConfigError
from tidelog.wire.cluster_config import ClusterConfig, keywords_from_options

REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 5_000


def connection_settings(config: BrokerConfig) -> ClusterConfig:
    """Raises ConfigError for settings that do not suffice, or that contradict each other."""
    listener = config.inter_broker_listener
    protocol = listener.security_protocol
    mechanism = config.sasl_mechanism_inter_broker_protocol
    own = config.of_listener(listener.name, mechanism if protocol.has_sasl else "")
    options = {"security.protocol": str(protocol)}
    if protocol.has_tls:
        if own.ssl_truststore_certificates or (own.ssl_keystore_key and not own.ssl_keystore_location):
            raise ConfigError(
                f"the inter-broker listener {listener.name} needs ssl.keystore.location and "
                "ssl.truststore.location: for its connections to other brokers, PEM text is not supported"
            )
        options["ssl.cafile"] = own.ssl_truststore_location
        # The user of SASL is who the other broker knows; a certificate is asked for only if it is set.
        options["ssl.certfile"] = own.ssl_keystore_location
        options["ssl.password"] = own.ssl_key_password
    if protocol.has_sasl:
        if not own.sasl_jaas_config:
            raise ConfigError(
                f"the inter-broker listener {listener.name} uses {protocol}, so this broker needs a user for "
                f"other brokers: set listener.name.{listener.name.lower()}.{mechanism.lower()}"
                ".sasl.jaas.config, or sasl.jaas.config"
            )
        options["sasl.mechanism"] = mechanism
        options["sasl.jaas.config"] = own.sasl_jaas_config
    return ClusterConfig(
        client_id=f"broker-{config.node_id}",
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        **keywords_from_options(options),
    )
