"""Several brokers over one catalog."""
