"""Lanes of the matrix that a test runs on, where all of them would prove no more."""

from __future__ import annotations

from typing import Final

import pytest

ON_ONE_PATH: Final = pytest.mark.parametrize("data_path", ["lane"], indirect=True)
"""For what stands above the way that messages take."""
ON_EMBEDDED: Final = pytest.mark.parametrize("server", ["embedded"], indirect=True)
"""For what the client does by itself, whatever the server is."""
