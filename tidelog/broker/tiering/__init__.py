"""Closed segments in remote storage. It is imported only if remote.log.storage.system.enable is set.

- `copying`: one closed segment becomes two objects
- `fetches`: reads of remote segments for consumers: in threads of their own, within a time
- `plan`: what is copied and what is deleted, as pure rules
- `remote_log`: which part of a partition's log is in remote storage, as this broker knows it while it leads
- `remote_segments`: segments in remote storage, read by ranges through caches
- `store_threads`: threads that call the store, which a stop does not wait for
- `tiering`: the one task of a broker that copies, deletes and sweeps
"""
