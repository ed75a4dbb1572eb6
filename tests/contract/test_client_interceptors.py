"""Interceptors run around every publish, in the order of the list."""

from __future__ import annotations
