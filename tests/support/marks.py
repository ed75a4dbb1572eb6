"""Marks for tests that need not run on every server, data path and framework."""

from __future__ import annotations

from typing import Final

import pytest

ON_ONE_PATH: Final = pytest.mark.parametrize("data_path", ["lane"], indirect=True)
"""For what stands above the way that messages take."""
ON_EMBEDDED: Final = pytest.mark.parametrize("server", ["embedded"], indirect=True)
"""For what the client or a service does in the same way with any server."""
ON_ONE_FRAMEWORK: Final = pytest.mark.parametrize("serve", ["starlette"], indirect=True)
"""For what is said and done alike, as one file says and does it for all."""
