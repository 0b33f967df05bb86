"""Three brokers and three members of etcd, each with a network namespace of its own, and a broker with a file
system on a loop device: as near to several machines as one kernel comes.
"""
