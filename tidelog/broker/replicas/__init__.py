"""The replicas of this broker: from a topic in the catalog to records in a log that are durable."""
