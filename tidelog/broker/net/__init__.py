"""Connections, from bytes to handlers and back. Only here, errors become error codes.

- `acceptor`: accepts connections: a few per step of the loop, and none beyond the file handles
- `answers`: the answer frame of a request: its result or its error, encoded, counted and charged
- `connection`: one client's connection: frames in, answers out in the order of the requests, both bounded
- `dispatch`: from a request frame to its answer frame: the only place where errors become codes
- `endpoints`: the sockets of a broker's listeners
- `error_counts`: how often each error code is in a response, as Kafka's `errorCounts` counts them for
  ErrorsPerSec
- `exchange`: one request of a client until its answer, and its place in the queue of its connection
- `gate`: which API is allowed at which step of authentication: the check before the handlers
- `handshakes`: connections that have not finished their TLS handshake: how many, how long, and how they end
- `http`: /metrics, /healthz, /readyz and the other routes
- `http_authentication`: who may use the HTTP port of a broker with security
- `http_console`: the paths of the console, which is imported with its first visitor
- `http_faults`: /faults on the HTTP port: used by `tidelog fault` and by tests in any language
- `http_origins`: which requests are refused because of the page that causes them
- `http_places`: the connections of the HTTP port: how many are allowed, and which are closed for new ones
- `http_sessions`: the sessions of the console: who signed in, until when, and by which cookie
- `inherited`: the sockets that a process of several gets from the parent process
- `memory_guard`: measures the memory of all connections, and carries out what `queued_memory` decides
- `metering`: charges requests to the quotas of their clients, and has a client that is above one wait
- `produce_stream`: the fast path of a producer's repeated Produce requests
- `request_queue`: what one connection has taken and not sent yet: order, memory, and when it takes no more
- `routes`: how each (API, version) is served: decode, handler, encode, count, and the error answer
- `server`: all client connections that the listening sockets accepted
- `tls_transport`: TLS between a socket and its connection
- `writing`: what a connection and its transport agree on; buffers in one call
"""
