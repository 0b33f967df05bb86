"""Tools that break networks, disks and brokers, and check what was stored; not in the wheel.

- `checker`: compares the stored records with what was sent and what writers were answered
- `etcd`: real members of etcd on loopback, which are killed, stopped and continued
- `failover`: how long writes wait after a fault
- `foreign_readers`: reads the stored records with other projects' clients
- `honest_disk`, `power`: disks that lose what was never synced
- `latest_values`: what a compacted topic contains of the records that were sent, and what it must contain
- `marks`: how a record is identified: key and value of record `counter` of a writer's partition
- `process`, `process_tree`: a broker process that can be killed
- `proxy`, `link`, `wire`: a TCP proxy that knows Kafka's frames
- `readback`: what is stored, read in three ways
- `refusals`: whether librdkafka keeps its epoch while brokers refuse what it has in flight
- `relay`: a broker's way to etcd, which can be blocked
- `report`: the report of a run
- `runner`: one run: a broker process behind the proxy, writers of two clients, faults from a seed
- `saboteur`, `schedule`: which faults, and when
- `several_brokers`: three brokers over etcd, and one topic with a replica at each of them
- `site`: the brokers of a run, their proxies, disks and etcd
- `trial`: what one kind of trial is, and what it tried, found and left out
- `trimming`: deletes records of a compacted topic whenever it is cleaned
- `workload`: what the writers of a run share, and ours
- `workload_aiokafka`, `workload_confluent`, `workload_kafka_python`: those of other clients
- `workload_keyed`: a writer to a compacted topic
- `cluster/`: several machines
- `histories/`: checkers of histories, as those of Elle and Jepsen
- `damage/`, `hostile/`, `power_cut/`, `transactions/`: trials of their own
"""
