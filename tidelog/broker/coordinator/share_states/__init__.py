"""The states of share partitions (KIP-932): where each group is in each partition, pure."""
