"""An adapter for requests: ``session.mount("https://", fullbore.requests.Adapter())``."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Mapping
from http.client import HTTPMessage
from typing import Any, NoReturn

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidSchema, InvalidURL
from requests.utils import get_auth_from_url, prepend_scheme_if_needed, select_proxy
from urllib3.util import parse_url

from . import _checks, _errors
from ._client import Client
from ._request import Prepared, _set_content
from ._response import Response
from ._timeout import Timeout

__all__ = ["Adapter"]

#: What requests does itself. It gives each request its limit on connecting, which cannot be longer than the client's.
_RAW: dict[str, Any] = {"max_redirects": 0, "decompression": False, "cookies": False, "timeout": Timeout(connect=None)}

_VERSIONS = {"HTTP/1.0": 10, "HTTP/1.1": 11, "HTTP/2": 20}


class Adapter(HTTPAdapter):
    """Sends the requests of a ``requests.Session``. The settings are those of :class:`fullbore.Client`; certificates and
    proxies are those that requests gives with each request.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = {**_RAW, **settings}
        self._clients: dict[tuple[Any, ...], Client] = {}
        self._lock = threading.Lock()
        super().__init__()

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        url = request.url or ""
        limits = _limits(timeout)
        client = self._client_for(url, verify, cert, proxies or {})
        try:
            response = client._send(_prepared(request, url, limits), reads_body=False)
        except _errors.Error as error:
            _raise(error, request)
        except (TypeError, ValueError) as error:
            raise requests.exceptions.InvalidHeader(str(error), request=request) from error
        return self.build_response(request, _raw(response, request))  # type: ignore[no-any-return,no-untyped-call,unused-ignore]

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["_settings"])  # type: ignore[misc]

    def _client_for(self, url: str, verify: Any, cert: Any, proxies: Mapping[str, str]) -> Client:
        """The client for these certificates and this proxy."""
        proxy = select_proxy(url, dict(proxies))
        if proxy:
            proxy = prepend_scheme_if_needed(proxy, "http")
            if not parse_url(proxy).host:
                raise requests.exceptions.InvalidProxyURL("Please check proxy URL. It is malformed and could be missing the host.")
        if "verify" in self._settings and verify is True:
            verify = self._settings["verify"]
        if not url.lower().startswith("https"):
            verify, cert = True, None
        key = (verify, cert if cert is None or isinstance(cert, str) else tuple(cert), proxy)
        with self._lock:
            client = self._clients.get(key)
            if client is None:
                settings = {**self._settings, "verify": verify, "cert": key[1], "proxy": proxy or False}
                _check_files(verify, key[1])
                try:
                    client = self._clients[key] = Client(**settings)
                except ValueError as error:
                    raise OSError(f"Could not use a file of certificates: {error}") from error
        return client


def _check_files(verify: Any, cert: Any) -> None:
    """Says what is missing, in the words of requests."""
    if isinstance(verify, str) and not os.path.exists(verify):
        raise OSError(f"Could not find a suitable TLS CA certificate bundle, invalid path: {verify}")
    certificate, key = cert if isinstance(cert, tuple) else (cert, None)
    if certificate and not os.path.exists(certificate):
        raise OSError(f"Could not find the TLS certificate file, invalid path: {certificate}")
    if key and not os.path.exists(key):
        raise OSError(f"Could not find the TLS key file, invalid path: {key}")


def _limits(timeout: Any) -> Timeout:
    connect: Any
    read: Any
    if isinstance(timeout, tuple):
        try:
            connect, read = timeout
        except ValueError:
            raise ValueError(
                f"Invalid timeout {timeout}. Pass a (connect, read) timeout tuple, or a single float to set both timeouts to the "
                "same value."
            ) from None
    elif isinstance(timeout, urllib3.Timeout):
        given = (timeout.connect_timeout, timeout.read_timeout)
        connect, read = (None if limit is urllib3.Timeout.DEFAULT_TIMEOUT else limit for limit in given)
    else:
        connect = read = timeout
    for limit in (connect, read):
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float))):
            raise ValueError(f"Timeout value was {limit!r}, but it must be an int, float or None.")
    return Timeout(connect=connect, response=read, read=read, write=read)


def _prepared(request: requests.PreparedRequest, url: str, limits: Timeout) -> Prepared:
    given: Any = [(name, value) for name, value in request.headers.items() if name.lower() != "transfer-encoding"]
    headers = _checks.fields(given)
    target = url.partition("#")[0]
    name, _ = get_auth_from_url(target)
    if name and "://" in target:
        # requests has made a field of them.
        scheme, _, rest = target.partition("://")
        authority, slash, path = rest.partition("/")
        target = f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"
    ours = Prepared(request.method or "GET", target, headers)
    ours.timeout = limits
    if request.body is not None:
        _set_content(ours, request.body)
    return ours


class _Body(io.RawIOBase):
    """A response as the file that urllib3 reads."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._is_done = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if self._is_done or not len(view):
            return 0
        try:
            data = self._response._next(1, len(view))
        except _errors.TimeoutError as error:
            raise TimeoutError(str(error)) from error
        except _errors.Error as error:
            # urllib3 makes a `ProtocolError` of it, and requests a `ChunkedEncodingError`.
            raise ConnectionError(str(error)) from error
        view[: len(data)] = data
        self._is_done = not data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._response.close()
        super().close()


def _raw(response: Response, request: requests.PreparedRequest) -> urllib3.HTTPResponse:
    headers = urllib3.HTTPHeaderDict()
    message = HTTPMessage()
    for name, value in response.headers.raw:
        headers.add(name.decode("ascii"), value.decode("latin-1"))
        message[name.decode("ascii")] = value.decode("latin-1")
    raw = urllib3.HTTPResponse(
        body=io.BufferedReader(_Body(response)),
        headers=headers,
        status=response.status,
        version=_VERSIONS.get(response.http_version, 11),
        reason=_reason(response.status),
        preload_content=False,
        decode_content=False,
        request_method=request.method,
        request_url=request.url,
    )
    # Where requests looks for cookies.
    raw._original_response = _Original(message)  # type: ignore[assignment]
    return raw


class _Original:
    def __init__(self, message: HTTPMessage) -> None:
        self.msg = message

    def isclosed(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


def _reason(status: int) -> str:
    from http.client import responses

    return responses.get(status, "")


def _raise(error: _errors.Error, request: requests.PreparedRequest) -> NoReturn:
    kinds: list[tuple[type[_errors.Error], type[requests.exceptions.RequestException]]] = [
        (_errors.ConnectTimeout, requests.exceptions.ConnectTimeout),
        (_errors.ProxyError, requests.exceptions.ProxyError),
        (_errors.TLSError, requests.exceptions.SSLError),
        (_errors.InvalidURL, InvalidSchema if "://" not in (request.url or "") else InvalidURL),
        (_errors.InvalidRequest, requests.exceptions.InvalidHeader),
    ]
    if isinstance(error, _errors.TimeoutError) and not isinstance(error, _errors.ConnectTimeout):
        # What urllib3 says, which programs look for.
        told = TimeoutError(f"Read timed out. {error}")
        raise requests.exceptions.ReadTimeout(told, request=request) from error
    if error.kind == "protocol" and "content-length" in str(error):
        raise requests.exceptions.InvalidHeader(str(error), request=request) from error
    for kind, theirs in kinds:
        if isinstance(error, kind):
            raise theirs(str(error), request=request) from error
    raise requests.exceptions.ConnectionError(str(error), request=request) from error
