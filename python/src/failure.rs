//! Why something failed, in the words of the library, and the exception that it is in Python.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use fullbore::{Error, ErrorKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A failure, without any object of Python.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure {
    /// Selects the exception; `fullbore._errors` has the list.
    kind: &'static str,
    text: String,
    url: Option<String>,
    code: Option<u32>,
    status: Option<u16>,
    is_retryable: bool,
    /// No connection was made.
    is_connect: bool,
    /// Another attempt may succeed: a download continues.
    pub(crate) is_broken_off: bool,
    /// How long the server asks to wait for that.
    pub(crate) pause: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Failure {
            kind,
            text: text.into(),
            ..Self::default()
        }
    }

    pub(crate) fn canceled() -> Self {
        Self::new(
            "canceled",
            "the request was canceled: its client or the interpreter has ended",
        )
    }

    pub(crate) fn timeout(kind: &'static str, what: &str, limit: Duration) -> Self {
        Failure {
            is_broken_off: true,
            ..Self::new(kind, format!("{what} within {} s", limit.as_secs_f64()))
        }
    }

    /// The status of a response.
    pub(crate) fn status(status: http::StatusCode) -> Self {
        Failure {
            status: Some(status.as_u16()),
            ..Self::new("status", format!("the server answered with {status}"))
        }
    }

    pub(crate) fn of(mut self, url: &str) -> Self {
        self.text = format!("{url}: {}", self.text);
        self.url = Some(url.to_owned());
        self
    }

    /// What `fullbore._errors.of_native` makes an exception of. It is not called from here: a thread that runs Python within a
    /// function of Rust cannot be ended at the end of the interpreter.
    pub(crate) fn into_value(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        (
            self.kind,
            self.text,
            self.url,
            self.code,
            self.status,
            self.is_retryable,
            self.is_connect,
        )
            .into_pyobject(py)
    }

    /// As an error to raise, for what is wrong with an argument.
    pub(crate) fn raised(self) -> PyErr {
        PyValueError::new_err(self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        Failure {
            kind: if error.is_proxy() {
                "proxy"
            } else {
                name(error.kind())
            },
            text,
            url: error.url().map(str::to_owned),
            code: error.code().map(|code| code.0),
            status: error.status().map(|status| status.as_u16()),
            is_retryable: error.is_retryable(),
            pause: None,
            is_connect: error.is_connect(),
            is_broken_off: error.is_closed()
                || error.is_reset()
                || error.is_refused()
                || error.is_timeout()
                || error.is_connect(),
        }
    }
}

fn name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidUrl => "invalid_url",
        ErrorKind::InvalidMessage => "invalid_message",
        ErrorKind::Config | ErrorKind::WindowShrinks => "config",
        ErrorKind::Resolve => "resolve",
        ErrorKind::Connect | ErrorKind::Bind => "connect",
        ErrorKind::Proxy => "proxy",
        ErrorKind::Tls => "tls",
        ErrorKind::Certificate => "certificate",
        ErrorKind::NotHttp2 => "version",
        ErrorKind::Protocol => "protocol",
        ErrorKind::Closed => "closed",
        ErrorKind::Io => "io",
        ErrorKind::Refused => "refused",
        ErrorKind::Reset => "reset",
        ErrorKind::BodyLength => "body_length",
        ErrorKind::Body => "body",
        ErrorKind::Timeout => "timeout",
        ErrorKind::Canceled => "canceled",
        ErrorKind::Budget => "budget",
        ErrorKind::Status => "status",
        ErrorKind::Redirect => "redirect",
        ErrorKind::Decode => "decode",
        _ => "other",
    }
}
