"""A client's side of the wire: connections to brokers, their security and settings, the view of a cluster.

- `asked_apis`: which APIs are requested, in which versions
- `backoff`: the delay before a retry: it grows exponentially up to a maximum, with jitter
- `cluster`: the client's view of the cluster: the leader of each partition, and connections to brokers
- `cluster_config`: the connection settings that every client shares, as one value
- `connection`: one TCP connection to one broker: it pipelines requests and matches answers by correlation id
- `errors`: the exceptions of connections and of the view of a cluster: the base of all that a client raises
- `events`: the client's log: structured events, named as snake_case facts ("batch_retried",
  "connection_lost")
- `links`: the connections to brokers: at most one per address and lane, opened when needed
- `metadata`: the client's image of the cluster: nodes, topics, partitions and their leaders. Plain values
- `metrics`: what is measured of a client's requests, by Kafka's names, and the windows for it
- `opening`: how a connection begins: TCP, TLS, the versions of both sides, and the authentication
- `properties`: Kafka's properties of security, as settings of this client: files and options that Kafka's
  programs use
- `token_provider`: what an application gives for OAUTHBEARER: the interface of aiokafka's
  `AbstractTokenProvider`, or a file
- `security/`: TLS and SASL
"""
