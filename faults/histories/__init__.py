"""Checkers of histories, as those of Elle and Jepsen: which transactions and records contradict a promise.

- `history`: transactions, their reads and writes, and what a checker finds
- `cycles`: cycles of dependencies and their names
- `list_append`, `rw_register`: the anomalies of any store whose values are lists or registers
- `kafka_order`: the cycles that Kafka's transactions exclude
- `record_rules`: what senders and readers of partitions must agree on
- `looks`: the ends of partitions while they are written
- `picture`, `report`: an anomaly as a picture, a run as a text
"""
