"""The machine: the span processor, and what it is made of. Its front door is ``processor``."""
