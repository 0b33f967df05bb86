"""The broker: one process, or several, that serve Kafka's protocol from one data folder.

- `app`: a whole broker: the order in which its parts are opened, and closed in reverse
- `beginning`: begins a coroutine at once, where a task would begin with the next turn of the loop
- `clock`: the broker's two clocks: the time of day, and the time that has passed
- `cluster_stores`: the store that a broker's settings name
- `collector`: when Python's collector of cycles runs in a broker process
- `command`: the command line of the broker: `python -m tidelog.broker`, which is `tidelog serve`
- `features`: the features of Kafka that this broker has finalized, and in which versions
- `initial_objects`: makes the topics and users that the settings `topics` and `users` name
- `opening`: opens what is below the handlers: `services`
- `served_apis`: the APIs that this broker serves, their versions, and the kind of each request
- `services`: everything below the handlers: catalog, logs, replicas, producer ids, timers
- `tasks`: tasks that run beside their callers, until they end or their owner closes; waiting for an event
- `cluster/`: what the cluster agrees on, and where that persists
- `configuration/`: the settings of a broker and of topics: their tables, their sources, and what holds now
- `console/`: the pages of a broker under /console and its JSON API under /api/v1
- `coordinator/`: groups, transactions and producer ids: pure machines over logs of their own
- `data_folder/`: work on a data folder while no broker runs on it
- `fault_injection/`: faults that users request for tests, where `faults.enable` is set
- `handlers/`: request values in, response values out: one handler for each API that this broker serves
- `limits/`: limits of what peers may use: memory, file handles, time of the loop, quotas
- `net/`: connections, from bytes to handlers and back. Only here, errors become error codes
- `observability/`: metrics and log events
- `peers/`: this broker as a client of the other brokers of its cluster
- `processes/`: a broker of several processes, each with partitions of its own
- `replicas/`: the replicas of this broker: from a topic in the catalog to records in a log that are durable
- `security/`: who a peer is, and what it may do
- `share/`: share groups on the broker that leads a partition
- `storage/`: the log on disk
- `telemetry/`: the metrics that clients push to this broker (KIP-714)
- `tiering/`: closed segments in remote storage. It is imported only if remote.log.storage.system.enable is
  set
- `testing/`: a broker inside a test
"""
