//! What a failure of TLS means: for each error of rustls one sentence that says what happened and what to do.
//!
//! The sentences take the place of rustls's own texts, which name its types. A program can still ask for the error itself
//! ([`Error::rustls_error`]).

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

use crate::error::{Error, ErrorKind};

/// How many names of a certificate are listed.
const LISTED: usize = 8;

/// The error of a handshake with a server that failed.
pub(crate) fn handshake_error(host: &str, port: u16, error: io::Error) -> Error {
    if let Some(failure) = tls_error(&error) {
        let (kind, text) = of_handshake(host, port, failure);
        return Error::explained(kind, text, error);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let text = format!(
                "{host} closed the connection during the handshake; if port {port} does not speak TLS, try http://"
            );
            Error::explained(ErrorKind::Tls, text, error)
        }
        _ => Error::with_source(ErrorKind::Tls, format!("the connection with {host} broke"), error),
    }
}

/// The error of a connection that failed after its handshake. Over TLS 1.3 that is where a server says that it does not
/// accept the client's certificate (RFC 8446 section 4.4.2.4).
pub(crate) fn connection_error(error: io::Error) -> Error {
    let Some(failure) = tls_error(&error) else {
        return Error::io(error);
    };
    let (kind, text) = match failure {
        rustls::Error::AlertReceived(alert) if is_about_certificates(*alert) => {
            (ErrorKind::Tls, of_alert("the peer", *alert))
        }
        failure => (ErrorKind::Io, of_tls("the peer", failure)),
    };
    Error::explained(kind, text, error)
}

/// The failure of TLS that is a cause of an error.
pub(crate) fn failure_behind(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(failure) = error.downcast_ref::<io::Error>().and_then(tls_error) {
            return Some(connection_error(io::Error::other(failure.clone())));
        }
        cause = error.source();
    }
    None
}

/// What a server's certificate and key cannot be used for.
pub(super) fn key_error(error: rustls::Error) -> Error {
    let text = match &error {
        rustls::Error::InconsistentKeys(_) => {
            "the private key is not the one of the first certificate; the server's \
            own certificate comes first, those of its authorities after it"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(error) => {
            format!(
                "the first certificate cannot be used: {}",
                of_certificate_itself(error)
            )
        }
        // What `load_private_key` says of a key that it cannot read.
        rustls::Error::General(_) => {
            "the private key is of no supported kind or size; use RSA with 2048 bits or more, \
            ECDSA with P-256 or P-384, or Ed25519"
                .to_owned()
        }
        error => of_tls("the peer", error),
    };
    Error::explained(ErrorKind::Config, text, error)
}

/// What a trusted certificate cannot be used for.
pub(super) fn root_error(error: rustls::Error) -> Error {
    let text = match &error {
        rustls::Error::InvalidCertificate(error) => {
            format!(
                "a certificate to be trusted cannot be used: {}",
                of_certificate_itself(error)
            )
        }
        error => of_tls("the peer", error),
    };
    Error::explained(ErrorKind::Config, text, error)
}

/// The platform's certificates cannot be used.
pub(super) fn platform_error(error: rustls::Error) -> Error {
    let text = "this system has no trusted certificates; install them (Debian: ca-certificates), or name those to be \
        trusted";
    Error::explained(ErrorKind::Config, text, error)
}

/// rustls gives its errors to tokio in those of the standard library.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn of_handshake(host: &str, port: u16, error: &rustls::Error) -> (ErrorKind, String) {
    use AlertDescription::NoApplicationProtocol;
    match error {
        rustls::Error::InvalidCertificate(error) => (ErrorKind::Certificate, of_certificate(host, error)),
        rustls::Error::NoApplicationProtocol | rustls::Error::AlertReceived(NoApplicationProtocol) => {
            let text = format!("{host} refused every protocol that was offered in the TLS handshake (ALPN)");
            (ErrorKind::NotHttp2, text)
        }
        // What does not speak TLS begins with another octet than a record of TLS.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            let text = format!("port {port} of {host} does not speak TLS; try http://");
            (ErrorKind::Tls, text)
        }
        error => (ErrorKind::Tls, of_tls(host, error)),
    }
}

/// All errors but those that [`of_handshake`] sorts out.
fn of_tls(who: &str, error: &rustls::Error) -> String {
    use PeerIncompatible as Lacks;
    match error {
        rustls::Error::AlertReceived(alert) => of_alert(who, *alert),
        rustls::Error::InvalidCertificate(error) => of_certificate(who, error),
        rustls::Error::PeerIncompatible(
            Lacks::ServerDoesNotSupportTls12Or13
            | Lacks::ServerTlsVersionIsDisabledByOurConfig
            | Lacks::SupportedVersionsExtensionRequired
            | Lacks::Tls12NotOffered
            | Lacks::Tls12NotOfferedOrEnabled,
        ) => no_common_version(who),
        rustls::Error::PeerIncompatible(lack) => {
            format!(
                "{who} has too little in common with this side ({})",
                words(lack, ' ')
            )
        }
        rustls::Error::NoCertificatesPresented => format!("{who} presented no certificate"),
        rustls::Error::InvalidMessage(what) => {
            format!(
                "{who} sent an invalid TLS message ({}); this is an error of the peer",
                words(what, ' ')
            )
        }
        rustls::Error::PeerMisbehaved(what) => {
            format!(
                "{who} violated TLS ({}); this is an error of the peer",
                words(what, ' ')
            )
        }
        rustls::Error::InappropriateMessage { .. } | rustls::Error::InappropriateHandshakeMessage { .. } => {
            format!("{who} sent a TLS message out of its order; this is an error of the peer")
        }
        rustls::Error::DecryptError => {
            format!("what came from {who} cannot be decrypted; it was damaged or changed on the way")
        }
        rustls::Error::General(text) => text.clone(),
        rustls::Error::Other(cause) => cause.to_string(),
        other => words(other, ' '),
    }
}

fn no_common_version(who: &str) -> String {
    format!(
        "{who} speaks neither TLS 1.2 nor TLS 1.3, which are the versions of this side; its TLS must be updated"
    )
}

/// Whether a peer says with this alert that it does not accept a certificate, or the lack of one (RFC 8446 section 6.2).
fn is_about_certificates(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::CertificateRequired
    )
}

fn of_alert(who: &str, alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    // The registry's names are in snake case (RFC 8446 section 6).
    let name = match alert {
        Alert::Unknown(code) => code.to_string(),
        alert => words(&alert, '_'),
    };
    match alert {
        Alert::CertificateRequired | Alert::NoCertificate => {
            format!("{who} requires a client certificate, and was given none (alert {name})")
        }
        alert if is_about_certificates(alert) => {
            format!("{who} did not accept the certificate of this side, or that it has none (alert {name})")
        }
        Alert::ProtocolVersion => no_common_version(who),
        Alert::HandshakeFailure | Alert::InsufficientSecurity => format!(
            "{who} accepted none of the cipher suites and parameters that were offered, or requires a client \
             certificate (alert {name})"
        ),
        Alert::UnrecognisedName => format!("{who} has no site of this name (alert unrecognized_name)"),
        Alert::InternalError => format!("{who} failed in the handshake (alert {name}); its log may say why"),
        _ => format!("{who} ended the connection with the alert {name}"),
    }
}

fn of_certificate(who: &str, error: &CertificateError) -> String {
    match error {
        CertificateError::NotValidForNameContext { expected, presented } => of_name(who, expected, presented),
        CertificateError::NotValidForName => {
            format!("{who} presented one for other names; use a name that it carries")
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "{who} presented one that expired on {}; it must be renewed (the clock of this machine says {})",
            date(*not_after),
            date(*time)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "{who} presented one that is valid from {} on; wait until then, or correct the clock of this machine, which \
             says {}",
            date(*not_before),
            date(*time)
        ),
        CertificateError::UnknownIssuer => format!(
            "{who} presented one whose issuer is not trusted; trust the authority that signed it, or the certificate \
             itself if it is self-signed"
        ),
        CertificateError::BadSignature => format!(
            "a signature of {who} is wrong, or by a key that is too short, such as RSA below 2048 bits; if its authority was \
             made anew under the same name, trust the new one"
        ),
        CertificateError::Revoked => {
            format!("{who} presented one that its issuer has revoked; it must be replaced")
        }
        CertificateError::ExpiredRevocationListContext { next_update, .. } => format!(
            "whether the one of {who} has been revoked is unknown, for the list of revocations expired on {}; renew the \
             list",
            date(*next_update)
        ),
        CertificateError::Other(cause) if cause.to_string() == "CaUsedAsEndEntity" => format!(
            "{who} presented one of an authority (CA:TRUE), as `openssl req -x509` makes it, and it is not a trusted \
             one; trust this very certificate, or use one that an authority has signed"
        ),
        other => format!(
            "{who} presented one that cannot be used: {}",
            of_certificate_itself(other)
        ),
    }
}

/// What is wrong with a certificate, whoever presents it.
fn of_certificate_itself(error: &CertificateError) -> String {
    match error {
        CertificateError::BadEncoding => "it cannot be decoded".to_owned(),
        CertificateError::Expired => "it has expired, or ends before it begins; it must be renewed".to_owned(),
        CertificateError::NotValidYet => "it is not valid yet; is the clock of this machine right?".to_owned(),
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that is not supported here".to_owned()
        }
        CertificateError::UnknownRevocationStatus | CertificateError::ExpiredRevocationList => {
            "whether it has been revoked is unknown; renew the list of revocations".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its key or signature has an algorithm that is not supported here, such as SHA-1 or a short RSA key; make \
             one with RSA of 2048 bits or more, or ECDSA with P-256, and SHA-256"
                .to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its key usage is not that of a TLS server, which needs digitalSignature and serverAuth where they are stated"
                .to_owned()
        }
        CertificateError::Other(cause) => match &*cause.to_string() {
            "UnsupportedCertVersion" => "it is of X.509 version 1, which carries no subjectAltName; make one of version \
                3, with -extfile for `openssl x509` or -addext for `openssl req`"
                .to_owned(),
            text if text.contains(' ') => text.to_owned(),
            name => words(&format_args!("{name}"), ' '),
        },
        other => words(other, ' '),
    }
}

/// The certificate is for other names than `expected`, or for none.
fn of_name(who: &str, expected: &ServerName<'_>, presented: &[String]) -> String {
    let expected = expected.to_str();
    let presented: Vec<_> = presented.iter().filter_map(|name| plain_name(name)).collect();
    let kind = if expected.parse::<IpAddr>().is_ok() {
        "IP"
    } else {
        "DNS"
    };
    if presented.is_empty() {
        return format!(
            "{who} presented one without subjectAltName, which is valid for no name; make it again with the names, as in \
             openssl req -x509 … -addext subjectAltName={kind}:{expected}"
        );
    }
    let mut names: Vec<_> = presented.iter().take(LISTED).cloned().collect();
    if presented.len() > LISTED {
        names.push(format!("{} more", presented.len() - LISTED));
    }
    let names = match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    };
    format!(
        "{who} presented one that is valid for {names} only; use such a name, or a certificate that has {expected} in its \
         subjectAltName"
    )
}

/// webpki gives `DnsName("example.org")` and `IpAddress(192.0.2.1)`. The peer chose the name, so it is escaped.
fn plain_name(presented: &str) -> Option<String> {
    let dns = presented
        .strip_prefix("DnsName(\"")
        .and_then(|name| name.strip_suffix("\")"));
    let ip = || {
        presented
            .strip_prefix("IpAddress(")
            .and_then(|name| name.strip_suffix(')'))
    };
    dns.or_else(ip).map(|name| name.escape_debug().to_string())
}

/// As HTTP writes it (RFC 9110 section 5.6.7).
fn date(time: UnixTime) -> String {
    /// The last second that `httpdate` can write, in the year 9999.
    const LAST: u64 = 253_402_300_799;
    let seconds = time.as_secs().min(LAST);
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The name of a variant as words, without what it holds: `UnknownCA` is `unknown ca`.
fn words(variant: &dyn Debug, between: char) -> String {
    let debug = format!("{variant:?}");
    let name: Vec<char> = debug.chars().take_while(char::is_ascii_alphanumeric).collect();
    let mut words = String::new();
    for (at, letter) in name.iter().enumerate() {
        let begins = letter.is_ascii_uppercase()
            && at > 0
            && (name[at - 1].is_ascii_lowercase() || name.get(at + 1).is_some_and(char::is_ascii_lowercase));
        if begins {
            words.push(between);
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variants_become_words() {
        assert_eq!(words(&AlertDescription::UnknownCA, '_'), "unknown_ca");
        assert_eq!(
            words(&AlertDescription::UnknownPSKIdentity, '_'),
            "unknown_psk_identity"
        );
        assert!(of_alert("it", AlertDescription::from(0xee)).ends_with("with the alert 238"));
        assert_eq!(
            words(&PeerIncompatible::NoKxGroupsInCommon, ' '),
            "no kx groups in common"
        );
    }

    #[test]
    fn names_of_a_certificate_are_escaped_and_at_most_eight() {
        let expected = ServerName::try_from("a.example").expect("a name");
        let hostile = [
            "DnsName(\"\u{1b}[2J\")".to_owned(),
            "Unsupported(0x81)".to_owned(),
        ];
        let said = of_name("a.example", &expected, &hostile);
        assert!(said.contains(r"valid for \u{1b}[2J only"), "{said}");
        let many: Vec<_> = (0..20).map(|n| format!("IpAddress(192.0.2.{n})")).collect();
        let said = of_name("a.example", &expected, &many);
        assert!(said.contains("192.0.2.6, 192.0.2.7 and 12 more only"), "{said}");
    }
}
