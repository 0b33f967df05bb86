"""Closed segments in remote storage. It is imported only if remote.log.storage.system.enable is set."""
