"""HTTP/2 and HTTP/1.1 at the speed of the path.

>>> import fullbore
>>> with fullbore.Client() as client:
...     print(client.get("https://example.com/").text)
"""

from ._async_client import AsyncClient
from ._client import Client
from ._download import Downloaded
from ._errors import (
    BodyError,
    Canceled,
    CertificateError,
    ChecksumError,
    Closed,
    ConfigError,
    ConnectError,
    ConnectionLost,
    ConnectTimeout,
    DecodeError,
    Error,
    FileError,
    InvalidRequest,
    InvalidURL,
    MemoryBudgetError,
    PoolTimeout,
    ProtocolError,
    ProxyError,
    RangeError,
    ReadTimeout,
    RedirectError,
    Refused,
    ResolveError,
    ResponseTimeout,
    StatusError,
    StreamReset,
    TimeoutError,
    TLSError,
    VersionError,
    WriteTimeout,
)
from ._headers import Headers
from ._response import AsyncResponse, Response
from ._timeout import Timeout

__all__ = [
    "AsyncClient",
    "AsyncResponse",
    "BodyError",
    "Canceled",
    "CertificateError",
    "ChecksumError",
    "Client",
    "Closed",
    "ConfigError",
    "ConnectError",
    "ConnectTimeout",
    "ConnectionLost",
    "DecodeError",
    "Downloaded",
    "Error",
    "FileError",
    "Headers",
    "InvalidRequest",
    "InvalidURL",
    "MemoryBudgetError",
    "PoolTimeout",
    "ProtocolError",
    "ProxyError",
    "RangeError",
    "ReadTimeout",
    "RedirectError",
    "Refused",
    "ResolveError",
    "Response",
    "ResponseTimeout",
    "StatusError",
    "StreamReset",
    "TLSError",
    "Timeout",
    "TimeoutError",
    "VersionError",
    "WriteTimeout",
]
for _name in __all__:
    # The names in messages and documents are those that are imported.
    globals()[_name].__module__ = __name__
