"""A plugin of pytest: the sessions of requests' own tests have fullbore's adapter where they would have requests'."""

from __future__ import annotations

import fullbore.requests
import requests.sessions

requests.sessions.HTTPAdapter = fullbore.requests.Adapter  # type: ignore
