"""The inspector's page in a real browser, against a real server that real SDKs talk to."""
