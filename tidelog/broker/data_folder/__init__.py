"""Work on a data folder while no broker runs on it."""
