"""Administration: topics, groups, transactions, users, ACLs, quotas and configurations."""
