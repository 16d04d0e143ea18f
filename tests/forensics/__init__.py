"""Tests of the durable store and of the way to the backend."""
