"""The protocol of NSQ, and what a consumer decides. Pure."""
