//! The TLS configuration of `serve`, from its options.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fullbore::rustls::ServerConfig;

use super::certificate::{Certificate, Source};
use super::reach;
use super::self_signed::Kept;
use crate::args::ServerArgs;
use crate::exit::Failure;
use crate::key_log;
use crate::run;
use crate::transfer::state_folder;

/// The names that a self-signed certificate always has.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The certificate, and a configuration that uses it.
pub(super) type Tls = (Arc<Certificate>, Arc<ServerConfig>);

/// What the options ask for; `None` without TLS.
///
/// # Errors
/// The certificate cannot be read, made or used.
pub(super) fn from_options(
    args: &ServerArgs,
    addresses: impl Iterator<Item = SocketAddr>,
) -> Result<Option<Tls>, Failure> {
    let source = match (&args.cert, &args.key) {
        _ if !args.has_tls() => return Ok(None),
        (Some(cert), Some(key)) => Source::Files {
            cert: cert.clone(),
            key: key.clone(),
        },
        _ => self_signed(args, addresses),
    };
    let (certificate, mut config) = Certificate::load(source, args.client_ca.as_deref())?;
    if let Some(log) = key_log::from_env(true) {
        config.key_log = log;
    }
    Ok(Some((certificate, Arc::new(config))))
}

/// The certificate for the names that the user wants, for this machine, and for the addresses that it listens on. The first
/// name is that of its file.
fn self_signed(args: &ServerArgs, addresses: impl Iterator<Item = SocketAddr>) -> Source {
    let mut names = args.self_signed_name.clone();
    names.extend(LOCAL.map(str::to_owned));
    let listening: Vec<IpAddr> = addresses.map(|address| address.ip()).collect();
    if listening.iter().any(IpAddr::is_unspecified) {
        names.extend(reach::addresses().iter().map(IpAddr::to_string));
    }
    let given = listening.iter().filter(|ip| !ip.is_unspecified());
    names.extend(given.map(IpAddr::to_string));
    let mut seen = Vec::new();
    names.retain(|name| {
        !seen.contains(name) && {
            seen.push(name.clone());
            true
        }
    });
    let folder = state_folder::of_user().map(|state| state.join("self-signed"));
    let kept = folder.map(|folder| Kept::in_folder(&folder, &names));
    let reason = match &kept {
        None => "this user has no state folder".to_owned(),
        Some(kept) => match kept.load_or_make(&names) {
            Ok(_) => {
                return Source::SelfSigned {
                    names,
                    kept: Some(kept.clone()),
                };
            }
            Err(failure) => failure.message,
        },
    };
    run::complain(&format!(
        "note: {reason}; so the certificate is new at each start; set XDG_STATE_HOME to keep it"
    ));
    Source::SelfSigned { names, kept: None }
}

/// How clients trust a self-signed certificate that is kept: commands for the shell. `url` is what they request.
pub(super) fn advice(certificate: &Certificate, url: &str) -> Option<String> {
    let (path, expiry) = certificate.trusted_by()?;
    let path = quoted(&path.display().to_string());
    Some(format!(
        "clients trust the certificate {path}, valid until {}:\n  curl --cacert {path} {url}\n  fullbore get --cacert {path} {url}",
        httpdate::fmt_http_date(expiry)
    ))
}

/// As a word of the shell.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_path_is_one_word_of_the_shell() {
        assert_eq!(super::quoted("/a/b-1.pem"), "/a/b-1.pem");
        assert_eq!(super::quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
