"""Share groups (KIP-932): members, epochs, assignments, and which partitions have a state."""
