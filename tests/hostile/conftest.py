"""Clients of hostile servers take both ways that messages may take."""
