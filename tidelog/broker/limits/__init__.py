"""Limits of what peers may use: memory, file handles, time of the loop, quotas.

- `client_quotas`: what users and client ids may send, receive and use of the loop per second, pure
- `connection_limits`: how many connections a client's address may have, and how many new ones per second
- `handle_budget`: file handles: how many of them connections may take, so that enough remain for the logs
- `mutation_quota`: the quota on changes of topics: partitions that a client may create and delete per second
- `peer_events`: logs the events that peers cause, and how many were not logged
- `queued_memory`: how much memory all connections hold, and which of them must wait or end
- `quotas`: the quotas of the cluster: changed here only, and followed by what enforces them
- `turns`: the turns of long requests: one step of one request per turn of the event loop
"""
