"""The consumer of a share group: records are shared out one by one, and each is acknowledged (KIP-932).

- `config`: the share consumer's own settings, checked once
- `consumer`: the share consumer: it reads records that no other member has, and acknowledges them
- `dead_letters`: what the headers of a dead letter say
- `decoding`: converts what a broker answered to ShareFetch into records
- `fetcher`: one share session per broker: it fetches records and sends their acknowledgements
- `group`: one consumer's membership in a share group: it carries out its steps
- `held`: the records of one partition that this consumer holds, and their acknowledgements
- `membership`: a consumer's membership in a share group: which request comes next
- `records`: a record of a share group, and what an application does with it
- `session`: the share session with one broker: which partitions a request names
"""
