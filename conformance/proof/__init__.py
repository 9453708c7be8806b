"""The suite's proof of itself: every planted fault is seen, nothing right is. Not run against a named target."""
