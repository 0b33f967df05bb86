"""What starts Spark."""
