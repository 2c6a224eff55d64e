"""One call from a target to its posterior, and the training loop behind it."""
