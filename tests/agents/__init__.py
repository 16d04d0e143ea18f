"""Small agents with real tools; the end-to-end tests run them as processes of their own."""
