"""Tests that start real processes: the server, pip, peers. Slower than the unit tests, which stay under a minute."""
