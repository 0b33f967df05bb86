"""The consumer of a share group: records are shared out one by one, and each is acknowledged (KIP-932)."""
