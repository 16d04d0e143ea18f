"""Forensics: the durable store of failures, and their way to the backend."""
