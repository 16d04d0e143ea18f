"""Tests of conventions."""
