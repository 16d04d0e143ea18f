"""The machine: what the ends of spans mean."""
