"""The settings of a broker and of topics: their tables, their sources, and what holds now.

- `address_overrides`: addresses of clients, and the syntax of max.connections.per.ip.overrides
- `broker_config`: the settings of a broker: names, defaults, bounds and the meaning of each
- `broker_settings`: the settings in force: those of the start, and those that were changed since
- `coarse_settings`: Kafka's older settings in hours and minutes
- `cluster_settings`, `coordinator_settings`, `listener_settings`, `remote_settings`, `sasl_settings`,
  `security_settings`, `share_settings`: parts of the table of `broker_config`
- `group_settings`: what the settings of a share group mean
- `initial_objects`: topics and users that exist from the start
- `kafka_settings`: Kafka's settings that are not here, and why
- `kafka_variables`: settings in the variables of Kafka's image
- `listener_overrides`: settings of one listener, such as `listener.name.inside.ssl.client.auth`
- `listeners`: the listeners of a broker: their addresses, advertised addresses and security protocols
- `masking_rules`: what the console masks in records
- `memory_limit`: the memory limit of the control group of this process, and the settings that depend on it
- `process_count`: the setting `processes`: how many processes a broker has
- `processes`: the settings of each process of a broker that has several
- `resource_settings`: the settings of groups and of client metrics
- `settings`: the sources of settings: flags, environment, a TOML file
- `topic_configs`: the settings in force for a topic
- `topic_settings`: the settings that a topic may have in CreateTopics, AlterConfigs and DescribeConfigs
- `urls`: settings that are the URL of another service
"""
