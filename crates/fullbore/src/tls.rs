//! TLS by rustls: configurations for common cases. ALPN offers `h2`; servers also offer `http/1.1`.

mod below;
mod failure;
mod key_log;
mod pem;
mod verifier;

use std::sync::Arc;
#[cfg(feature = "self-signed")]
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls;

use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use self::verifier::{AcceptAny, OrItself};
use crate::error::{Error, ErrorKind};

pub use self::key_log::key_log_from_env;

pub(crate) use self::below::BelowTls;
pub(crate) use self::failure::{connection_error, failure_behind, handshake_error};

/// The most plaintext of a record (RFC 8446 section 5.1).
pub(crate) const RECORD: usize = 16_384;

/// The limit on sealed, unsent data of a connection, in bytes of plaintext: one write to the socket. More would cost memory
/// for each connection to a slow peer. The default of rustls is 64 KiB.
pub(crate) const SEALED: usize = 8 * RECORD;

/// The certificate authorities that a client trusts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Roots {
    /// Those that the platform trusts: as authorities, and on Linux each also as the certificate of a server itself, as
    /// OpenSSL has it.
    Platform,
    /// Only the certificates of this PEM text: as authorities, and each also as the certificate of a server itself, for the
    /// names in its subjectAltName. So one that `openssl req -x509` has made is trusted as it is.
    Pem(Vec<u8>),
    /// Any certificate. The connection is encrypted, but the peer is unknown. Only for tests.
    InsecureAcceptAny,
}

/// Makes a configuration for clients: TLS 1.2 and 1.3, ALPN `h2`, as a single [connection](crate::client::handshake) needs
/// it. A [`Client`](crate::Client) offers the versions that it speaks instead.
///
/// ```
/// # fn client(pem: Vec<u8>) -> Result<fullbore::Client, fullbore::Error> {
/// use fullbore::tls::{Roots, client_config};
///
/// let config = client_config(Roots::Pem(pem))?;
/// fullbore::Client::builder().tls_config(config.into()).build()
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] when there is no crypto provider, the PEM text has no certificate or one that cannot be decoded,
/// or the platform's certificates cannot be read.
pub fn client_config(roots: Roots) -> Result<ClientConfig, Error> {
    let provider = provider()?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(tls_config_error)?;
    let mut config = match roots {
        Roots::Platform => {
            let verifier = rustls_platform_verifier::Verifier::new(provider);
            let verifier = verifier.map_err(failure::platform_error)?;
            #[cfg(target_os = "linux")]
            let verifier = OrItself::installed(verifier);
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth()
        }
        Roots::Pem(pem) => {
            let verifier =
                OrItself::given(pem::certificates(&pem)?, provider).map_err(failure::root_error)?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth()
        }
        Roots::InsecureAcceptAny => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider.signature_verification_algorithms)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// As [`client_config`], with a certificate chain and its private key, both as PEM, for servers that ask for one.
///
/// # Errors
/// As [`client_config`], and when a text has no certificate or key, or the key does not match the certificate.
pub fn client_config_with_certificate(
    roots: Roots,
    certificate_pem: &[u8],
    key_pem: &[u8],
) -> Result<ClientConfig, Error> {
    let mut config = client_config(roots)?;
    let certified = CertifiedKey::from_der(
        pem::certificates(certificate_pem)?,
        pem::private_key(key_pem)?,
        config.crypto_provider(),
    );
    let resolver = SingleCertAndKey::from(certified.map_err(failure::key_error)?);
    config.client_auth_cert_resolver = Arc::new(resolver);
    Ok(config)
}

/// The same configuration without the certificate of this side.
#[cfg(feature = "proxy")]
pub(crate) fn anonymous(mut config: Arc<ClientConfig>) -> Arc<ClientConfig> {
    if config.client_auth_cert_resolver.has_certs() {
        Arc::make_mut(&mut config).client_auth_cert_resolver = Arc::new(NoCertificate);
    }
    config
}

/// Has no certificate for any server.
#[cfg(feature = "proxy")]
#[derive(Debug)]
struct NoCertificate;

#[cfg(feature = "proxy")]
impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Makes a configuration for servers from a certificate chain and its private key, both as PEM: TLS 1.2 and 1.3, ALPN
/// `h2` and `http/1.1`.
///
/// It sets [`ServerConfig::send_half_rtt_data`]: with TLS 1.3 a [`Server`](crate::Server) sends its SETTINGS behind its part of
/// the handshake, before that of the client has arrived (RFC 8446 section 4.4.4). A client knows the windows before its first
/// request then, which saves an upload a round trip. Nothing else is sent so early.
///
/// # Errors
/// [`ErrorKind::Config`] when there is no crypto provider, a text has no certificate or key, or the key does not match the
/// certificate.
pub fn server_config(certificate_pem: &[u8], key_pem: &[u8]) -> Result<ServerConfig, Error> {
    server_config_with(certificate_pem, key_pem, WebPkiClientVerifier::no_client_auth())
}

/// As [`server_config`], but clients need a certificate that one of the authorities in a PEM text has signed. The
/// handshake refuses all others.
///
/// # Errors
/// As [`server_config`], and [`ErrorKind::Config`] when the text of the authorities has no certificate or one that cannot
/// be used.
pub fn server_config_for_clients_of(
    certificate_pem: &[u8],
    key_pem: &[u8],
    authorities_pem: &[u8],
) -> Result<ServerConfig, Error> {
    let mut authorities = RootCertStore::empty();
    for certificate in pem::certificates(authorities_pem)? {
        authorities.add(certificate).map_err(failure::root_error)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider()?).build();
    server_config_with(certificate_pem, key_pem, verifier.map_err(tls_config_error)?)
}

fn server_config_with(
    certificate_pem: &[u8],
    key_pem: &[u8],
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, Error> {
    let key = pem::private_key(key_pem)?;
    let anonymous = !clients.offer_client_auth();
    let mut config = ServerConfig::builder_with_provider(provider()?)
        .with_safe_default_protocol_versions()
        .map_err(tls_config_error)?
        .with_client_cert_verifier(clients)
        .with_single_cert(pem::certificates(certificate_pem)?, key)
        .map_err(failure::key_error)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // rustls sends no data to a client that has yet to show its certificate.
    config.send_half_rtt_data = anonymous;
    Ok(config)
}

/// A self-signed certificate and its key.
#[cfg(feature = "self-signed")]
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SelfSigned {
    /// The certificate as PEM, for [`Roots::Pem`].
    pub cert_pem: String,
    /// The private key as PEM.
    pub key_pem: String,
}

/// Makes a certificate for names and addresses such as `localhost` and `127.0.0.1`, with a key on P-256. It never expires.
/// For tests and demos.
///
/// # Errors
/// [`ErrorKind::Config`] when a name is invalid.
#[cfg(feature = "self-signed")]
pub fn self_signed(names: &[&str]) -> Result<SelfSigned, Error> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).map_err(not_made)?;
    Ok(SelfSigned {
        cert_pem: made.cert.pem(),
        key_pem: made.signing_key.serialize_pem(),
    })
}

/// As [`self_signed`], with a certificate for servers alone that is valid for a limited time. It begins an hour ago, for
/// clients whose clock is late.
///
/// ```
/// # fn main() -> Result<(), fullbore::Error> {
/// let days = |days: u64| std::time::Duration::from_secs(days * 24 * 3600);
/// let made = fullbore::tls::self_signed_for(&["files.example.org", "localhost"], days(90))?;
/// assert!(fullbore::tls::server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).is_ok());
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] when a name is invalid.
#[cfg(feature = "self-signed")]
pub fn self_signed_for(names: &[&str], validity: Duration) -> Result<SelfSigned, Error> {
    use std::fmt::Write as _;
    const HOUR: Duration = Duration::from_secs(3600);
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut fields = rcgen::CertificateParams::new(names).map_err(not_made)?;
    let key = rcgen::KeyPair::generate().map_err(not_made)?;
    // A client that trusts another certificate with this subject would take that one for the issuer.
    let mut subject = String::from("self-signed ");
    for octet in key.public_key_raw().iter().rev().take(8) {
        let _ = write!(subject, "{octet:02x}");
    }
    fields.distinguished_name = rcgen::DistinguishedName::new();
    fields.distinguished_name.push(rcgen::DnType::CommonName, subject);
    fields.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    fields.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    fields.not_before = epoch + now.saturating_sub(HOUR);
    fields.not_after = epoch + now.saturating_add(validity);
    Ok(SelfSigned {
        cert_pem: fields.self_signed(&key).map_err(not_made)?.pem(),
        key_pem: key.serialize_pem(),
    })
}

#[cfg(feature = "self-signed")]
fn not_made(error: rcgen::Error) -> Error {
    Error::with_source(ErrorKind::Config, "the certificate cannot be made", error)
}

/// The crypto provider of the process, or the one of a feature.
fn provider() -> Result<Arc<CryptoProvider>, Error> {
    if let Some(provider) = CryptoProvider::get_default() {
        return Ok(Arc::clone(provider));
    }
    #[cfg(feature = "aws-lc-rs")]
    return Ok(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    Err(Error::config(
        "TLS has no crypto provider; enable the feature `ring` or `aws-lc-rs`, or install one for the process",
    ))
}

fn tls_config_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::with_source(ErrorKind::Config, "TLS cannot be set up", error)
}

#[cfg(all(test, feature = "self-signed"))]
mod tests {
    use super::*;

    #[test]
    fn certificates_and_keys_are_found_among_other_sections() {
        let made = self_signed(&["localhost"]).expect("made");
        let both = format!("{}{}", made.key_pem, made.cert_pem);
        assert!(server_config(both.as_bytes(), both.as_bytes()).is_ok());
        assert!(client_config(Roots::Pem(both.into_bytes())).is_ok());
    }

    #[test]
    fn a_key_of_another_certificate_is_refused_as_such() {
        let one = self_signed(&["localhost"]).expect("made");
        let other = self_signed(&["localhost"]).expect("made");
        let refused = server_config(one.cert_pem.as_bytes(), other.key_pem.as_bytes());
        let error = refused.expect_err("the key was accepted");
        assert_eq!(error.kind(), ErrorKind::Config);
        let said = error.to_string();
        assert!(said.contains("is not the one of the first certificate"), "{said}");
    }

    #[test]
    fn authorities_of_clients_are_checked_like_any_certificates() {
        let made = self_signed_for(&["localhost"], Duration::from_secs(60)).expect("made");
        let (cert, key) = (made.cert_pem.as_bytes(), made.key_pem.as_bytes());
        assert!(server_config_for_clients_of(cert, key, cert).is_ok());
        for authorities in [&b""[..], b"no PEM", key] {
            let refused = server_config_for_clients_of(cert, key, authorities);
            let error = refused.expect_err("the text was accepted");
            assert_eq!(error.kind(), ErrorKind::Config);
        }
    }

    #[test]
    fn a_section_that_is_no_certificate_is_refused_as_such() {
        let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
        let error = client_config(Roots::Pem(pem)).expect_err("the text was accepted");
        let said = error.to_string();
        assert!(
            said.ends_with("a certificate to be trusted cannot be used: it cannot be decoded"),
            "{said}"
        );
        let made = self_signed(&["localhost"]).expect("made");
        let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let error = server_config(pem, made.key_pem.as_bytes()).expect_err("the text was accepted");
        let said = error.to_string();
        assert!(
            said.ends_with("the first certificate cannot be used: it cannot be decoded"),
            "{said}"
        );
    }
}
