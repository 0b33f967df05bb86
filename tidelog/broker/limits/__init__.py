"""Limits of what peers may use: memory, file handles, time of the loop, quotas."""
