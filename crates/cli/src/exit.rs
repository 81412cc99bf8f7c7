//! The exit codes of the program, and the failure that carries one of them.
//!
//! Only `main` turns a failure into a sentence on standard error and an exit code.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use fullbore::{ErrorCode, ErrorKind};
use serde::ser::{Serialize, SerializeStruct as _, Serializer};

/// Defines [`Exit`] and the table in `--help`: for each exit code its meaning, and the failures that have it with their names in
/// `--json`. A script that has to know more reads the name.
macro_rules! exit_codes {
    ($($code:literal, $meaning:literal: $($exit:ident = $name:literal),+;)*) => {
        /// Why the program failed.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Exit {
            $($($exit,)+)*
        }

        const TABLE: &[(u8, &str, &[(Exit, &str)])] = &[$(($code, $meaning, &[$((Exit::$exit, $name)),+]),)*];
    };
}

exit_codes! {
    1, "anything that no other code names": Other = "other";
    2, "wrong command line, or an invalid URL": Usage = "usage", BadUrl = "bad-url";
    5, "no connection: the name, the server, the proxy, or the address to listen on":
        Resolve = "resolve", Connect = "connect", Proxy = "proxy", Listen = "listen";
    6, "no TLS: the certificate is not trusted, or the handshake failed": Certificate = "certificate", Tls = "tls";
    9, "the peer broke a rule of HTTP, or speaks no version that may be used":
        Protocol = "protocol", NotHttp2 = "not-http2";
    10, "the transfer broke off: closed, reset, refused, or shorter than its length":
        Closed = "closed", Reset = "reset", GoAway = "go-away", BodyLength = "body-length";
    13, "the peer took too long": Timeout = "timeout";
    14, "the HTTP status is 400 or above, or a redirect that is not followed": Status = "status";
    15, "the output file exists": Exists = "exists";
    17, "a local file cannot be read or written, or the disk is full": LocalIo = "local-io", DiskFull = "disk-full";
    21, "the body is not what it should be (--checksum, demo)": Checksum = "checksum", WrongBytes = "wrong-bytes";
    23, "the body is larger than --max-filesize, or a folder than its list": TooLarge = "too-large";
    130, "Ctrl-C; run the same command again to resume": Interrupted = "interrupted";
    143, "SIGTERM; run the same command again to resume": Terminated = "terminated";
}

impl Exit {
    /// The stable name that `--json` prints as `error.kind`.
    pub(crate) fn name(self) -> &'static str {
        self.row().1
    }

    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        self.row().0
    }

    fn row(self) -> (u8, &'static str) {
        let of = |row: &(u8, &str, &'static [(Exit, &'static str)])| {
            let found = row.2.iter().find(|(exit, _)| *exit == self);
            found.map(|(_, name)| (row.0, *name))
        };
        TABLE.iter().find_map(of).unwrap_or((1, "other"))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The exit codes as `--help` shows them.
pub(crate) fn table() -> String {
    let mut text = String::from("Exit codes:\n    0  success\n");
    for (code, meaning, _) in TABLE {
        text.push_str(&format!("  {code:>3}  {meaning}\n"));
    }
    text.push_str("When several URLs fail, the code is that of the first failure.");
    text
}

/// An exit code, and one sentence that says what happened, where, and what to do.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// The beginning of the body of an error response, as one printable line.
    pub(crate) body: Option<String>,
}

/// What is said of a file that exists.
const EXISTS: &str = "exists; --force replaces it";
/// The same of a file of `get -r`.
const EXISTS_IN_TREE: &str =
    "exists; -N downloads what is new or has changed, --skip-existing what is missing, --force all";

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            body: None,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// An error of the library about `place` (a URL or an address).
    pub(crate) fn from_library(place: &str, error: &fullbore::Error) -> Self {
        let (exit, advice) = match error.is_proxy() {
            true => (Exit::Proxy, proxy_advice(error.kind())),
            false => meaning(error.kind()),
        };
        let special = tls_advice(error)
            .or_else(|| version_advice(error))
            .or_else(|| https_advice(place, error))
            .or_else(|| time_advice(error));
        let advice = special.unwrap_or(advice);
        let sentence = chain(error.without_url());
        let sentence = sentence.trim_end().trim_end_matches('.');
        let roots = roots_advice(error);
        Self::new(exit, format!("{place}: {sentence}{advice}{roots}"))
    }

    /// The file to be written exists.
    pub(crate) fn exists(path: &Path) -> Self {
        Self::new(Exit::Exists, format!("{} {EXISTS}", path.display()))
    }

    /// The file to be written by `get -r` exists.
    pub(crate) fn exists_in_tree(path: &Path) -> Self {
        Self::new(Exit::Exists, format!("{} {EXISTS_IN_TREE}", path.display()))
    }

    /// Whether it is [`Self::exists`] or [`Self::exists_in_tree`].
    pub(crate) fn is_existing_file(&self) -> bool {
        self.exit == Exit::Exists
            && [EXISTS, EXISTS_IN_TREE]
                .iter()
                .any(|end| self.message.ends_with(end))
    }

    /// An error of a local file; `doing` completes "cannot …".
    pub(crate) fn from_io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let (exit, reason) = match error.kind() {
            io::ErrorKind::StorageFull => (Exit::DiskFull, "the disk is full; free some space and try again"),
            io::ErrorKind::QuotaExceeded => (
                Exit::DiskFull,
                "the disk quota is exceeded; free some space and try again",
            ),
            io::ErrorKind::FileTooLarge => (
                Exit::DiskFull,
                "the file system or `ulimit -f` allows no larger file",
            ),
            io::ErrorKind::BrokenPipe => (Exit::LocalIo, "the reader has closed it"),
            io::ErrorKind::NotFound => (Exit::LocalIo, "there is no such file or folder; check the path"),
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => (
                Exit::LocalIo,
                "permission denied; check its owner and mode with `ls -ld`, or use another place",
            ),
            io::ErrorKind::IsADirectory => (Exit::LocalIo, "it is a folder; give the path of a file"),
            io::ErrorKind::NotADirectory => (
                Exit::LocalIo,
                "a part of the path is a file, not a folder; check the path",
            ),
            io::ErrorKind::AlreadyExists => (
                Exit::LocalIo,
                "something else has this name; remove it, or use another name",
            ),
            io::ErrorKind::ReadOnlyFilesystem => {
                (Exit::LocalIo, "the file system is read-only; use another folder")
            }
            _ => (Exit::LocalIo, &*without_numbers(&error.to_string())),
        };
        Self::new(exit, format!("cannot {doing} {}: {reason}", path.display()))
    }
}

/// A text without the numbers of the system, such as "(os error 2)".
pub(crate) fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '-');
        kept.push_str(rest.strip_prefix(')').unwrap_or(rest));
    }
    kept
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.body {
            Some(body) => write!(f, "\nfullbore: the server says: {body}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// As `error` in a JSON document.
impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Failure", 3 + usize::from(self.body.is_some()))?;
        fields.serialize_field("kind", self.exit.name())?;
        fields.serialize_field("exit", &self.exit.code())?;
        fields.serialize_field("message", &self.message)?;
        if let Some(body) = &self.body {
            fields.serialize_field("body", body)?;
        }
        fields.end()
    }
}

/// An error with its causes, as one sentence.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => without_numbers(&format!("{error}: {}", chain(cause))),
        None => without_numbers(&error.to_string()),
    }
}

/// What is wrong with a setting: the chain without the words that the library puts before each of them.
pub(crate) fn wrong_setting(error: &fullbore::Error) -> String {
    let text = chain(error);
    let reason = text.strip_prefix("invalid configuration: ").unwrap_or(&text);
    reason.to_owned()
}

/// The exit code of a library error, and what the user can do about it.
fn meaning(kind: ErrorKind) -> (Exit, &'static str) {
    match kind {
        ErrorKind::InvalidUrl => (Exit::BadUrl, ""),
        ErrorKind::Resolve => (Exit::Resolve, "; check the host name and the network"),
        ErrorKind::Proxy => (Exit::Proxy, ""),
        ErrorKind::Connect => (Exit::Connect, "; check the port and that the server runs"),
        ErrorKind::Certificate => (Exit::Certificate, "; --insecure accepts any certificate"),
        ErrorKind::Tls => (Exit::Tls, ""),
        ErrorKind::NotHttp2 => (
            Exit::NotHttp2,
            "; check the port, and whether the server needs https://",
        ),
        ErrorKind::Protocol => (Exit::Protocol, "; this is an error of the peer"),
        ErrorKind::Closed => (Exit::Closed, "; try again"),
        ErrorKind::Refused => (Exit::GoAway, "; try again later"),
        ErrorKind::Reset => (Exit::Reset, "; the server's log may say why"),
        ErrorKind::BodyLength => (Exit::BodyLength, "; this is an error of the peer"),
        ErrorKind::Timeout => (Exit::Timeout, "; try again, or allow more time with --speed-time"),
        ErrorKind::Bind => (Exit::Listen, ""),
        ErrorKind::Body | ErrorKind::Io => (Exit::LocalIo, ""),
        ErrorKind::Config | ErrorKind::InvalidMessage => (Exit::Usage, ""),
        _ => (Exit::Other, ""),
    }
}

/// What the user can do about a proxy. What refuses says so itself.
fn proxy_advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Proxy => "",
        _ => {
            "; check --proxy, the variables https_proxy, http_proxy and all_proxy, and the server's name and port"
        }
    }
}

/// What the options of this program can do about a failure of TLS.
fn tls_advice(error: &fullbore::Error) -> Option<&'static str> {
    use fullbore::rustls::{AlertDescription, CertificateError, Error};
    const TRUST: &str = "; --cacert FILE trusts it, --insecure accepts any certificate";
    match error.rustls_error()? {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            Some(TRUST)
        }
        // webpki says so of the certificate of an authority that is not itself a trusted one.
        Error::InvalidCertificate(CertificateError::Other(cause)) => {
            (cause.to_string() == "CaUsedAsEndEntity").then_some(TRUST)
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            Some("; --cert FILE --key FILE presents one")
        }
        _ => None,
    }
}

/// Whoever names the trusted certificates by a variable has forgotten it by now.
fn roots_advice(error: &fullbore::Error) -> String {
    use fullbore::rustls::{CertificateError, Error};
    let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
    let variable = ["SSL_CERT_FILE", "SSL_CERT_DIR"]
        .into_iter()
        .find(|name| std::env::var_os(name).is_some());
    match variable {
        Some(name) if cfg!(target_os = "linux") && error.rustls_error() == Some(&unknown) => {
            format!("; the variable {name} names the certificates that are trusted without --cacert")
        }
        _ => String::new(),
    }
}

/// What is advised in place of https://, where the URL has it already or the error says so.
fn https_advice(place: &str, error: &fullbore::Error) -> Option<&'static str> {
    match error.kind() == ErrorKind::NotHttp2 {
        true if place.starts_with("https:") => Some("; check the port"),
        // The library advises it itself if the peer answered in TLS.
        true if error.to_string().ends_with("try https://") => Some(""),
        _ => None,
    }
}

/// No connection was made in time: no other limit would help.
fn time_advice(error: &fullbore::Error) -> Option<&'static str> {
    let is_late = error.kind() == ErrorKind::Timeout && error.is_connect();
    is_late.then_some("; check the host and the port, or allow more time with --connect-timeout")
}

/// A peer requires HTTP/1.1 where the library may not choose it, or has no body to send again; or its message is malformed, as
/// that of some servers is over HTTP/2 alone.
fn version_advice(error: &fullbore::Error) -> Option<&'static str> {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<fullbore::Error>());
    let cause = cause.unwrap_or(error);
    match (cause.code(), cause.kind()) {
        (Some(ErrorCode::HTTP_1_1_REQUIRED), _) => Some("; use --http1.1"),
        (Some(ErrorCode::PROTOCOL_ERROR), ErrorKind::Protocol) => {
            Some("; this is an error of the peer, which --http1.1 may avoid")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_few_codes_each_once_and_each_failure_has_a_name_of_its_own() {
        let codes: Vec<u8> = TABLE.iter().map(|row| row.0).collect();
        assert!(codes.is_sorted_by(|a, b| a < b) && codes.len() == 14, "{codes:?}");
        let all: Vec<_> = TABLE
            .iter()
            .flat_map(|row| row.2.iter().map(|it| (row.0, it)))
            .collect();
        for (index, (code, (exit, name))) in all.iter().enumerate() {
            assert_eq!((exit.code(), exit.name()), (*code, *name));
            assert!(all[index + 1..].iter().all(|(_, later)| later.1 != *name));
        }
    }

    #[test]
    fn numbers_of_the_system_are_left_out() {
        assert_eq!(without_numbers("refused (os error 111); try"), "refused; try");
        assert_eq!(without_numbers("a (os error 2): b (os error 13)"), "a: b");
        assert_eq!(without_numbers("plain"), "plain");
    }

    #[test]
    fn a_full_disk_has_its_own_name_and_names_the_file() {
        let error = io::Error::from(io::ErrorKind::StorageFull);
        let failure = Failure::from_io("write", Path::new("movie.mkv"), &error);
        assert_eq!(failure.exit, Exit::DiskFull);
        assert!(failure.message.contains("movie.mkv"));
    }
}
