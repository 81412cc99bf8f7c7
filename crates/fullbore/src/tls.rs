//! TLS by rustls: configurations for common cases. ALPN offers `h2` and nothing else.

use std::sync::Arc;

use tokio_rustls::rustls;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::error::{Error, ErrorKind};

/// The most plaintext of a record (RFC 8446 section 5.1).
pub(crate) const RECORD: usize = 16_384;

/// The limit on sealed, unsent data of a connection, in bytes of plaintext: one write to the socket. More would cost memory
/// for each connection to a slow peer. The default of rustls is 64 KiB.
pub(crate) const SEALED: usize = 8 * RECORD;

/// The certificate authorities that a client trusts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Roots {
    /// Those that the platform trusts.
    Platform,
    /// Only the certificates of this PEM text.
    Pem(Vec<u8>),
    /// Any certificate. The connection is encrypted, but the peer is unknown. Only for tests.
    InsecureAcceptAny,
}

/// Makes a configuration for clients: TLS 1.2 and 1.3, ALPN `h2`.
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
/// [`ErrorKind::Config`] when there is no crypto provider, the PEM text has no certificate, or the platform's
/// certificates cannot be read.
pub fn client_config(roots: Roots) -> Result<ClientConfig, Error> {
    let provider = provider()?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(tls_config_error)?;
    let mut config = match roots {
        Roots::Platform => {
            let verifier = rustls_platform_verifier::Verifier::new(provider).map_err(tls_config_error)?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth()
        }
        Roots::Pem(pem) => {
            let mut store = RootCertStore::empty();
            for certificate in certificates(&pem)? {
                store.add(certificate).map_err(tls_config_error)?;
            }
            builder.with_root_certificates(store).with_no_client_auth()
        }
        Roots::InsecureAcceptAny => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider.signature_verification_algorithms)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Makes a configuration for servers from a certificate chain and its private key, both as PEM: TLS 1.2 and 1.3, ALPN
/// `h2`.
///
/// # Errors
/// [`ErrorKind::Config`] when there is no crypto provider, a text has no certificate or key, or the key does not match the
/// certificate.
pub fn server_config(certificate_pem: &[u8], key_pem: &[u8]) -> Result<ServerConfig, Error> {
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| match error {
        pem::Error::NoItemsFound => Error::config(
            "the PEM text has no private key; use an unencrypted key in PKCS #8, PKCS #1 or SEC1",
        ),
        error => Error::with_source(ErrorKind::Config, "the private key cannot be read", error),
    })?;
    let mut config = ServerConfig::builder_with_provider(provider()?)
        .with_safe_default_protocol_versions()
        .map_err(tls_config_error)?
        .with_no_client_auth()
        .with_single_cert(certificates(certificate_pem)?, key)
        .map_err(tls_config_error)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
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

/// Makes a certificate for names and addresses such as `localhost` and `127.0.0.1`, with a key on P-256. For tests and
/// demos.
///
/// # Errors
/// [`ErrorKind::Config`] when a name is invalid.
#[cfg(feature = "self-signed")]
pub fn self_signed(names: &[&str]) -> Result<SelfSigned, Error> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| Error::with_source(ErrorKind::Config, "the certificate cannot be made", error))?;
    Ok(SelfSigned {
        cert_pem: made.cert.pem(),
        key_pem: made.signing_key.serialize_pem(),
    })
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

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::with_source(ErrorKind::Config, "the certificates cannot be read", error))?;
    if certificates.is_empty() {
        return Err(Error::config("the PEM text has no certificate"));
    }
    Ok(certificates)
}

fn tls_config_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::with_source(ErrorKind::Config, "TLS cannot be set up", error)
}

/// The error of a failed handshake with `host`.
pub(crate) fn handshake_error(host: &str, error: std::io::Error) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let (kind, text) = match inner {
        Some(rustls::Error::InvalidCertificate(_)) => (ErrorKind::Certificate, host.to_owned()),
        Some(rustls::Error::NoApplicationProtocol)
        | Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)) => {
            let text = format!("{host} refused h2 in the TLS handshake (ALPN)");
            (ErrorKind::NotHttp2, text)
        }
        _ => (ErrorKind::Tls, host.to_owned()),
    };
    Error::with_source(kind, text, error)
}

/// Accepts any certificate, but checks that the peer has its key.
#[derive(Debug)]
struct AcceptAny(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_PEM: &[u8] = b"-----BEGIN NOTHING-----";
    const CERTIFICATE_IN_NO_BASE64: &[u8] = b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n";
    const ENCRYPTED_KEY: &[u8] =
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    const CUT_KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----\nAAAA\n";

    fn refusal<T>(result: Result<T, Error>) -> String {
        let error = result.err().expect("the text was accepted");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    }

    #[test]
    fn a_text_without_certificates_is_refused_as_such() {
        for text in [&b""[..], b"no PEM at all", ENCRYPTED_KEY] {
            let said = refusal(client_config(Roots::Pem(text.to_vec())));
            assert!(said.ends_with("the PEM text has no certificate"), "{said}");
        }
    }

    #[test]
    fn a_certificate_that_cannot_be_decoded_is_refused_with_the_reason() {
        for text in [CERTIFICATE_IN_NO_BASE64, NO_PEM] {
            let said = refusal(client_config(Roots::Pem(text.to_vec())));
            assert!(said.ends_with("the certificates cannot be read"), "{said}");
        }
    }

    #[test]
    fn a_text_without_a_private_key_is_refused_and_says_which_formats_are_read() {
        for text in [&b""[..], ENCRYPTED_KEY] {
            let said = refusal(server_config(b"", text));
            assert!(
                said.contains("unencrypted key in PKCS #8, PKCS #1 or SEC1"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_private_key_that_is_cut_short_is_refused_with_the_reason() {
        let said = refusal(server_config(b"", CUT_KEY));
        assert!(said.ends_with("the private key cannot be read"), "{said}");
    }

    #[cfg(feature = "self-signed")]
    #[test]
    fn certificates_and_keys_are_found_among_other_sections() {
        let made = self_signed(&["localhost"]).expect("made");
        let both = format!("{}{}", made.key_pem, made.cert_pem);
        assert!(server_config(both.as_bytes(), both.as_bytes()).is_ok());
        assert!(client_config(Roots::Pem(both.into_bytes())).is_ok());
    }
}
