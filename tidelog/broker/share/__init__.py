"""Share groups (KIP-932) on the broker that leads a partition: which member holds which records."""
