"""A plugin of pytest: `http` and `https` are fullbore's file system in fsspec's own tests."""

from __future__ import annotations

import fullbore.fsspec

fullbore.fsspec.register()
