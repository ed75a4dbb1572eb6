"""Exactly once: messages that are delivered once, and transactions that are visible whole."""
