"""Who a peer is, and what it may do.

- `acls`: the ACLs of the cluster: created, found and deleted here only
- `authentication`: authentication of connections by SASL: counts, events, how long it holds
- `authorizer`: which operations the ACLs allow to a principal, pure
- `broker_user`: the user that the brokers of one cluster are to each other
- `certificate_watch`: notices new files of certificates and keys, so that they are used without a restart
- `certificates`: what the broker reads of a certificate: its subject as Kafka writes it, and when it expires
- `cipher_suites`: `ssl.cipher.suites`: from Kafka's names to the settings of OpenSSL
- `guesses`: how often an address may be wrong about passwords
- `principal_mapping`: how the subject of a certificate becomes a user (`ssl.principal.mapping.rules`)
- `reasons`: why the authorizer allows or refuses an operation, with the ACL that decided, pure
- `required_access`: what each API needs: the one table of operations on resources
- `sasl`: the server's side of the SASL mechanisms: a client's tokens in, the answers to them out
- `signing_keys`: the keys with which tokens are signed: a JWK set from a file or a URL, read again and again
- `tls`: TLS of one listener: the settings of OpenSSL, from the settings `ssl.*` and the files that they name
- `tokens`: whether a signed token (JWT) is valid, and whom it names
- `unknown_users`: what clients are shown of users that do not exist
- `users`: the users of the cluster: their credentials are changed, and passwords checked, here only
"""
