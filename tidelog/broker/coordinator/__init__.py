"""Coordinators: pure machines that take facts and `now_ms` and return decisions, and an asyncio runtime.

- `decision`: the answer of a coordinator's machine: records to make durable, responses, and timers
- `group_coordinator`: a `group_machine` over each partition of `__consumer_offsets`
- `group_machine`: all groups of one partition of `__consumer_offsets`: their members and offsets
- `group_table`: the groups of one type, with all that was written and as they may be shown
- `group_types`: groups of both types: each request goes to the machine of its group's type
- `lag`: the lag of groups, for metrics and pages
- `log_journal`: the log of an internal partition as the journal of a coordinator
- `noted_bound`: the highest bound of producer ids that this broker saw in the catalog, in its data folder
- `offset_metrics`: committed offsets and lag on `/metrics`
- `participation`: asks the coordinator of a transaction on another broker whether partitions take part
- `pending_records`: records of transactions that are open: they count once their transaction commits
- `producer_id_manager`: producer ids of one broker, over the cluster's store
- `producer_ids`: producer ids: a pure machine that hands out the ids of blocks
- `record_formats`: the kinds of records in the log of an internal partition, as key and value
- `remote_transactions`: the requests of transactions to other brokers: markers, and partitions that take part
- `runtime`: runs a pure machine over a journal: records are durable before responses leave; timers
- `share_coordinator`: a machine of the states of share partitions over each partition of
  `__share_group_state`
- `shards`: the partitions of an internal topic as coordinators: one machine over the log of each
- `transaction_coordinator`: a machine of transactions over each partition of `__transaction_state`
- `transaction_markers`: writes the markers of a transaction whose outcome is decided
- `uncommitted`: what a coordinator may show while some of its records are not committed
- `consumer_groups/`: groups of the consumer protocol (KIP-848), pure
- `groups/`: consumer groups of the classic protocol: members, generations, assignments
- `offsets/`: committed offsets of groups, pure
- `share_groups/`: share groups (KIP-932), pure
- `share_states/`: where share groups are in partitions, pure
- `transactions/`: transactions: the machine that holds the state of each transactional id, and its records
"""
