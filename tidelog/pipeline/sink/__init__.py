"""What all writes share."""
