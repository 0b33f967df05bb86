"""The table of topic settings: all of Kafka 4's, checked as Kafka checks them."""

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.coarse_settings import FINE_SETTINGS
from tidelog.broker.configuration.topic_configs import BROKER_NAMES, ConfigSource, TopicConfigs
from tidelog.broker.configuration.topic_settings import TOPIC_SETTINGS, ConfigType, config_type
from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.settings import as_text, settings_of

# Name: type, default, broker's setting; of Kafka's LogConfig and ServerTopicConfigSynonyms.
KAFKA = {
    "cleanup.policy": ("LIST", "delete", "log.cleanup.policy"),
    "compression.gzip.level": ("INT", "-1", "compression.gzip.level"),
    "compression.lz4.level": ("INT", "9", "compression.lz4.level"),
    "compression.type": ("STRING", "producer", "compression.type"),
    "compression.zstd.level": ("INT", "3", "compression.zstd.level"),
    "delete.retention.ms": ("LONG", "86400000", "log.cleaner.delete.retention.ms"),
    "errors.deadletterqueue.group.enable": ("BOOLEAN", "false", ""),
    "file.delete.delay.ms": ("LONG", "60000", "log.segment.delete.delay.ms"),
    "flush.messages": ("LONG", str(2**63 - 1), "log.flush.interval.messages"),
    "flush.ms": ("LONG", str(2**63 - 1), "log.flush.interval.ms"),
    "follower.replication.throttled.replicas": ("LIST", "", ""),
    "index.interval.bytes": ("INT", "4096", "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": ("LIST", "", ""),
    "local.retention.bytes": ("LONG", "-2", "log.local.retention.bytes"),
    "local.retention.ms": ("LONG", "-2", "log.local.retention.ms"),
    "max.compaction.lag.ms": ("LONG", str(2**63 - 1), "log.cleaner.max.compaction.lag.ms"),
    "max.decompressed.message.bytes": ("INT", "2147483639", "max.decompressed.message.bytes"),
    "max.message.bytes": ("INT", "1048588", "message.max.bytes"),
    "message.timestamp.after.max.ms": ("LONG", "3600000", "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": ("LONG", str(2**63 - 1), "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": ("STRING", "CreateTime", "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": ("DOUBLE", "0.5", "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": ("LONG", "0", "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": ("INT", "1", "min.insync.replicas"),
    "preallocate": ("BOOLEAN", "false", "log.preallocate"),
    "remote.copy.lag.bytes": ("LONG", "-1", "log.remote.copy.lag.bytes"),
    "remote.copy.lag.ms": ("LONG", "0", "log.remote.copy.lag.ms"),
    "remote.log.copy.disable": ("BOOLEAN", "false", ""),
    "remote.log.delete.on.disable": ("BOOLEAN", "false", ""),
    "remote.storage.enable": ("BOOLEAN", "false", ""),
    "retention.bytes": ("LONG", "-1", "log.retention.bytes"),
    "retention.ms": ("LONG", "604800000", "log.retention.ms"),
    "segment.bytes": ("INT", "1073741824", "log.segment.bytes"),
    "segment.index.bytes": ("INT", "10485760", "log.index.size.max.bytes"),
    "segment.jitter.ms": ("LONG", "0", "log.roll.jitter.ms"),
    "segment.ms": ("LONG", "604800000", "log.roll.ms"),
    "unclean.leader.election.enable": ("BOOLEAN", "false", "unclean.leader.election.enable"),
}
CONFIGS = TopicConfigs(BrokerSettings(BrokerConfig()))


def test_a_topic_may_have_every_setting_of_kafka_4_with_its_type_default_and_broker_setting() -> None:
    declared = {
        name: (config_type(each).name, as_text(each.default), BROKER_NAMES.get(name, ""))
        for name, each in TOPIC_SETTINGS.items()
    }
    assert declared == KAFKA | {"acks.all.durable": ("BOOLEAN", "true", "acks.all.durable")}


def test_every_setting_says_what_it_does_or_why_it_does_nothing() -> None:
    for described in CONFIGS.describe({}):
        reason = TOPIC_SETTINGS[described.name].extras.get("without_effect")
        assert ("Without effect here: " in described.documentation) == (reason is not None)
        assert described.documentation.endswith(".")


def test_every_value_in_force_can_be_set_again_as_text() -> None:
    for name in KAFKA:
        value = CONFIGS.value({}, name)
        assert CONFIGS.check({name: value}) == {name: value}
        assert CONFIGS.log_config({name: value}, LogConfig()) == LogConfig(), name


def test_a_setting_that_no_broker_setting_stands_for_is_its_own_synonym() -> None:
    described = {each.name: each for each in CONFIGS.describe({"remote.log.copy.disable": "true"})}
    assert described["remote.log.copy.disable"].synonyms == (
        ("remote.log.copy.disable", "true", ConfigSource.DYNAMIC_TOPIC_CONFIG, True),
        ("remote.log.copy.disable", "false", ConfigSource.DEFAULT_CONFIG, True),
    )


def test_topics_inherit_each_setting_that_the_broker_has_under_kafkas_name() -> None:
    other = {"STRING": None, "BOOLEAN": "true", "DOUBLE": "0.25", "INT": "8", "LONG": "77"}
    for name, (kind, default, broker_name) in KAFKA.items():
        if not broker_name or kind == "LIST":
            continue
        value = other[kind] or next(each for each in TOPIC_SETTINGS[name].choices if each != default)
        value = "1048576" if name == "segment.bytes" else value
        configs = TopicConfigs(BrokerSettings(BrokerConfig.load({broker_name: value})))
        assert as_text(getattr(configs.log_config({}, LogConfig()), name.replace(".", "_"))) == value
        (described,) = [each for each in configs.describe({}) if each.name == name]
        assert described.synonyms == (
            (broker_name, value, ConfigSource.STATIC_BROKER_CONFIG, True),
            (broker_name, default, ConfigSource.DEFAULT_CONFIG, broker_name not in FINE_SETTINGS),
        )


def test_a_brokers_setting_that_stands_for_a_topics_has_its_type() -> None:
    for each in settings_of(BrokerConfig):
        of_topic = TOPIC_SETTINGS.get(each.extras.get("topic_setting", ""))
        assert of_topic is None or config_type(each) is config_type(of_topic) is not ConfigType.UNKNOWN
