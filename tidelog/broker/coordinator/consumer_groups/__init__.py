"""Groups of the consumer protocol (KIP-848): members, epochs, target and current assignments."""
