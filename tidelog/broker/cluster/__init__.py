"""What the cluster agrees on: topics, ids, leaders, settings, producer id blocks; and where that persists.

- `catalog`: the cluster's image: brokers, topics, leaders, settings, users, ACLs, quotas, producer id blocks
- `choice`: which of the two places of the catalog counts, the SQLite file or its copy
- `cluster`: the one place that changes the catalog, and follows the store's watch
- `commit_feed`: the commits of one store as a stream, for its watchers in this process
- `controller`: who is fenced and who leads: what the controller changes
- `disk_space`: disk space reserved for the cluster store, so that a full disk allows deletions
- `etcd_client`: requests to etcd over its JSON gateway, at any of several endpoints
- `etcd_layout`: how the catalog is laid out in etcd: its keys, its values, its transactions
- `etcd_session`: a broker's session in etcd: a key with a lease that is kept alive
- `etcd_store`: the catalog in etcd, which several brokers on several machines share
- `facts`: the catalog's facts as text, and the digest over all of them
- `image_difference`: the deltas that make one image of the catalog into a later one
- `image_lines`: an image of the catalog as JSON objects, one per line of text
- `in_sync`: which replicas are in sync, and which may lead without being so
- `membership`: a broker among others: its session, its registration, and its part as controller
- `refusals`: finds out when the process of another broker has ended
- `registration`: whether a broker that starts may take the place of the one that the catalog knows
- `remote_store`: the cluster store of another process of this machine, over its Unix socket
- `second_copy`: the second copy of the catalog, beside the SQLite file: `cluster.copy` in the data folder
- `sqlite_file`: the catalog in a SQLite file: its tables, what is read from them, what a delta writes
- `sqlite_store`: the embedded store of one broker: a SQLite file in the data folder, and its copy
- `store`: where the catalog persists: the interface that any transactional store can serve
- `store_frames`: what a store that is served over a socket and its clients send each other
- `store_server`: a cluster store that other processes of this machine use over a Unix socket
- `store_sharing`: one store for several brokers of this machine, each with a session
- `together`: work of many callers that shares its syncs of the disk
- `unix_sockets`: Unix sockets between the processes of one broker, at paths that may be long
"""
