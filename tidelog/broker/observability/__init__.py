"""Metrics and log events.

- `cleaner_counts`: numbers of the log cleaner, under the names of Kafka's JMX exporter
- `history`: what the broker measured in the last 24 hours
- `log_events`: structured log events, as JSON or as readable lines
- `metrics`: the broker's numbers under the names that the common JMX exporter rules give Kafka's MBeans
- `producer_outcomes`: duplicates and refusals of each producer and partition, bounded
- `share_counts`: the numbers of share groups
- `rates`: rates and percentiles between two readings of the broker's counts, pure
- `remote_counts`: numbers of remote storage, under the names of Kafka's JMX exporter
- `series`: families of series for prometheus_client, which is imported by the first scrape
- `throttle_counts`: how often and for how long clients were throttled
"""
