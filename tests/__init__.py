"""The tests; they import each other's helpers by name."""
