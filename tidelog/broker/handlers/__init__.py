"""Request values in, response values out: one handler for each API that this broker serves.

- `access_control`: whether the principal of a request may do what the request asks for
- `acls`, `client_quotas`, `cluster_admin`, `configs`, `console`, `consumer_groups`, `coordinators`,
  `group_admin`, `group_membership`, `group_offsets`, `metadata`, `offset_commits`, `offsets`, `producers`,
  `sasl`, `share_fetch`, `share_groups`, `share_states`, `snapshots`, `telemetry`,
  `topic_partitions`, `topics`, `transaction_markers`, `transactions`, `users`: the APIs that the module's
  docstring names
- `brokers`: the brokers that a client may connect to, and the address that each advertises for its listener
- `connection_state`: the state of one connection: its listener, its client, and its step of authentication
- `context`: what a handler knows about the request beside its values, and the forms of its answer
- `cut_off`: what a broker refuses while it cannot reach the cluster's store
- `error_answers`: the answers to requests that fail as a whole: one error in every place of a response where
  it can be
- `fetch`: Fetch: whole batches from the page cache; the high watermark wakes long polls
- `fetch_budget`: what one pass over the partitions of a Fetch may still read, and what it has read
- `fetch_reading`: reads the partitions of a Fetch, one after the other
- `fetch_sessions`: incremental fetch sessions (KIP-227): the broker remembers what a consumer requested
- `followed`: which partitions of a follower's session its next answer has to look at
- `leader_hints`: the new leaders, in answers of Produce and Fetch that refuse (KIP-951)
- `produce`: Produce: append in the order of arrival, answer once every batch is durable
- `produce_answers`: answers to Produce that wait until batches are durable, and for how long
- `produce_inspection`: the inspection of all batches of a request before the first of them is appended
- `produce_requests`: facts of a ProduceRequest as a whole, before any of its batches is appended
- `produce_rules`: what a batch of a Produce request must satisfy before it is appended: one list for all
  paths (`produce`)
- `produce_transactions`: what the transactions of a ProduceRequest need

A handler is a plain function: everything that depends on the order of arrival happens before it returns, and
it returns the response or an awaitable of it. `broker.served_apis` names the handler of each API.

Invariants: a refusal is a code in the response, never an exception; views in a request are not used after the
handler returned; every API that has a row is answered completely.
"""
