"""The broker: one process, or several, that serve Kafka's protocol from one data folder."""
