"""Bytes only: generated messages, the table of procedures, the codec of hot messages, envelopes.

The only room that imports betterproto2. Nothing here knows asyncio.
"""
