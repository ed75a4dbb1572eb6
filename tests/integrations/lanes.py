"""Lanes of the matrix that a test runs on, where all of them would prove no more."""

from __future__ import annotations

from typing import Final

import pytest

ON_EMBEDDED: Final = pytest.mark.parametrize("server", ["embedded"], indirect=True)
"""For what the service does by itself, whatever the server is."""
ON_ONE_FRAMEWORK: Final = pytest.mark.parametrize("serve", ["starlette"], indirect=True)
"""For what is said and done alike, as one file says and does it for all."""
