"""What the cluster agrees on: topics, ids, leaders, settings, producer id blocks; and where that persists."""
