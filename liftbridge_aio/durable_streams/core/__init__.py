"""The Durable Streams protocol without I/O: names and rules, Server-Sent Events, producers. Pure.

Section numbers are those of the protocol's specification, version 1.0.
"""
