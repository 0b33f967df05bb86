"""Three brokers and three members of etcd, each with a network namespace of its own, and a broker with a file
system on a loop device: as near to several machines as one kernel comes.

- `disks`: file systems that become full, fail, and are replaced by empty ones
- `network`: the namespaces, and which addresses do not reach each other
- `replicas`: whether all replicas have the same batches
- `saboteur`: the faults of several machines
- `site`: the brokers and members, put together
"""
