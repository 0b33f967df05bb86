"""The replicas of this broker: from a topic in the catalog to records in a log that are durable.

- `divergence`: where a follower truncates its log when it diverges from the leader's
- `fetcher`: copies what one leader has to the replicas here that follow it
- `fetchers`: which replicas fetch from which leader, and the repair of a log that cannot follow
- `fetching`: what a follower asks one leader for, and which of the answers still count
- `followers`: what the leader of a partition knows of its followers, and which of them are in sync
- `follower_writes`: what a replica writes and deletes while it follows its leader
- `group_commit`: one fdatasync for all requests that wait on a log
- `in_sync_sets`: a broker changes the in-sync sets of the partitions that it leads
- `leader_followers`: what a replica does with its followers while it leads
- `leader_writes`: what a replica writes while it leads, and which mark an answer waits for
- `leadership`: the state of a leader with followers, in one epoch
- `log_cleaner`: the broker's log cleaner: finds the dirtiest compacted log and cleans it, one at a time
- `maintenance`: what a broker does by the clock: checkpoints, retention, expiry of idle producers
- `ownership`: whether a data folder and a catalog belong together
- `partitions`: the partitions that this broker holds: a log and a replica for each
- `progress`: the progress of the replicas of a partition, and its effects: what is committed, what clients
  may read,
- `reconciler`: starts and stops replicas and changes their roles, according to the catalog
- `replica`: this broker's copy of a partition, and the change of its role
- `replica_log`: the log of a partition as this broker holds it, whatever its role
- `replication_quota`: how many bytes per second of throttled replicas a broker sends and gets
- `roles`: the role of a broker for a partition
- `topics`: creates, grows, changes and deletes topics on request
"""
