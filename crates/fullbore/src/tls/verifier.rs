//! How a client verifies certificates: against given ones, or not at all.

use std::sync::Arc;

use tokio_rustls::rustls;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, ServerName, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, ExtendedKeyPurpose, OtherError, RootCertStore, SignatureScheme,
};
use x509_cert::Certificate;
use x509_cert::der::asn1::{AnyRef, BitStringRef};
use x509_cert::der::oid::db::rfc5280::{ID_KP_CLIENT_AUTH, ID_KP_SERVER_AUTH};
use x509_cert::der::{Decode, Encode, SliceReader, Tagged};
use x509_cert::ext::pkix::{ExtendedKeyUsage, KeyUsage};

/// Trusts certificates as authorities for what they have signed, as `authorities` does, and each also as the certificate of a
/// server itself. `openssl req -x509` makes certificates that are both, which webpki accepts only as authorities. OpenSSL accepts
/// them, and so do its programs, such as curl.
#[derive(Debug)]
pub(super) struct OrItself {
    authorities: Arc<dyn ServerCertVerifier>,
    trusted: Trusted,
}

/// Which certificates are trusted.
#[derive(Debug)]
enum Trusted {
    Given(Vec<CertificateDer<'static>>),
    /// What the platform trusts: on Linux that is a folder or a file of certificates, in which a server's own may be, too.
    #[cfg(target_os = "linux")]
    Installed,
}

impl Trusted {
    /// Whether a certificate that the authorities refused, for this reason, is one of these.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(unused_variables, reason = "the platform's own are not asked")
    )]
    fn has(&self, certificate: &CertificateDer<'_>, reason: &rustls::Error) -> bool {
        match self {
            Self::Given(certificates) => certificates.contains(certificate),
            // They are read again, which takes milliseconds, only for this failure.
            #[cfg(target_os = "linux")]
            Self::Installed => {
                matches!(reason, rustls::Error::InvalidCertificate(_))
                    && rustls_native_certs::load_native_certs()
                        .certs
                        .contains(certificate)
            }
        }
    }
}

impl OrItself {
    pub(super) fn given(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, rustls::Error> {
        let mut store = RootCertStore::empty();
        for certificate in &certificates {
            store.add(certificate.clone())?;
        }
        let authorities = WebPkiServerVerifier::builder_with_provider(store.into(), provider)
            .build()
            .map_err(|error| rustls::Error::Other(OtherError(Arc::new(error))))?;
        Ok(Self {
            authorities,
            trusted: Trusted::Given(certificates),
        })
    }

    #[cfg(target_os = "linux")]
    pub(super) fn installed(authorities: rustls_platform_verifier::Verifier) -> Self {
        Self {
            authorities: Arc::new(authorities),
            trusted: Trusted::Installed,
        }
    }
}

impl ServerCertVerifier for OrItself {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self
            .authorities
            .verify_server_cert(certificate, intermediates, name, ocsp, now);
        match verified {
            Err(reason) if self.trusted.has(certificate, &reason) => verify_given(certificate, name, now),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Verifies a server's certificate that is itself a trusted one. Nobody's signature on it matters then, but its period
/// of validity, its usages and its names do.
fn verify_given(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    // This also refuses critical extensions that nobody here knows (RFC 5280 section 4.2).
    let parsed = ParsedCertificate::try_from(certificate)?;
    let fields = Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    verify_period(&fields, now)?;
    verify_usages(&fields)?;
    verify_server_name(&parsed, name)?;
    Ok(ServerCertVerified::assertion())
}

/// RFC 5280 section 4.1.2.5.
fn verify_period(fields: &Certificate, time: UnixTime) -> Result<(), CertificateError> {
    let validity = fields.tbs_certificate().validity();
    let not_before = UnixTime::since_unix_epoch(validity.not_before.to_unix_duration());
    let not_after = UnixTime::since_unix_epoch(validity.not_after.to_unix_duration());
    if time < not_before {
        return Err(CertificateError::NotValidYetContext { time, not_before });
    }
    if time > not_after {
        return Err(CertificateError::ExpiredContext { time, not_after });
    }
    Ok(())
}

/// RFC 5280 sections 4.2.1.3 and 4.2.1.12: a usage that is not stated is not restricted. Every key exchange of rustls is
/// signed by the server's key.
fn verify_usages(fields: &Certificate) -> Result<(), CertificateError> {
    let tbs = fields.tbs_certificate();
    let key_usage = tbs.get_extension::<KeyUsage>();
    if let Some((_, usage)) = key_usage.map_err(|_| CertificateError::BadEncoding)? {
        if !usage.digital_signature() {
            return Err(CertificateError::InvalidPurpose);
        }
    }
    let purposes = tbs.get_extension::<ExtendedKeyUsage>();
    let Some((_, purposes)) = purposes.map_err(|_| CertificateError::BadEncoding)? else {
        return Ok(());
    };
    // As webpki does, which does not take anyExtendedKeyUsage for it either.
    if purposes.0.contains(&ID_KP_SERVER_AUTH) {
        return Ok(());
    }
    let presented = purposes.0.iter().map(|purpose| match *purpose {
        ID_KP_CLIENT_AUTH => ExtendedKeyPurpose::ClientAuth,
        other => ExtendedKeyPurpose::Other(other.arcs().map(|arc| arc as usize).collect()),
    });
    Err(CertificateError::InvalidPurposeContext {
        required: ExtendedKeyPurpose::ServerAuth,
        presented: presented.collect(),
    })
}

/// Accepts any certificate, but checks that the peer has its key. Nothing else of the certificate is read: webpki refuses
/// version 1 of X.509, which many devices have, and critical extensions that it does not know.
#[derive(Debug)]
pub(super) struct AcceptAny(pub(super) WebPkiSupportedAlgorithms);

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
        let key = PublicKey::of(certificate).map_err(|_| no_key())?;
        let (_, algorithms) = self
            .0
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signature.scheme)
            .ok_or_else(no_key)?;
        // With ECDSA the scheme does not name the curve in TLS 1.2.
        let verifies = |algorithm: &&&dyn SignatureVerificationAlgorithm| {
            algorithm.public_key_alg_id().as_ref() == key.algorithm
                && algorithm
                    .verify_signature(key.bits, message, signature.signature())
                    .is_ok()
        };
        match algorithms.iter().find(verifies) {
            Some(_) => Ok(HandshakeSignatureValid::assertion()),
            None => Err(no_key()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = PublicKey::of(certificate).map_err(|_| no_key())?;
        verify_tls13_signature_with_raw_key(message, &key.whole, signature, &self.0).map_err(|_| no_key())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Not an error of the certificate, since any is accepted.
fn no_key() -> rustls::Error {
    let text = "the server does not prove that it has the key of its certificate, or the key is of a kind that is not supported \
                here, such as RSA below 2048 bits";
    rustls::Error::General(text.to_owned())
}

/// The public key of a certificate.
struct PublicKey<'a> {
    /// The subjectPublicKeyInfo (RFC 5280 section 4.1).
    whole: SubjectPublicKeyInfoDer<'static>,
    /// Its algorithm, without tag and length.
    algorithm: &'a [u8],
    bits: &'a [u8],
}

impl<'a> PublicKey<'a> {
    fn of(certificate: &'a CertificateDer<'_>) -> Result<Self, x509_cert::der::Error> {
        let mut fields = inside(inside_of(certificate)?)?;
        // The version comes first, and version 1 is left out.
        let first = AnyRef::decode(&mut fields)?;
        // Serial number, signature algorithm, issuer, validity, subject.
        let before_key = if first.tag().is_context_specific() { 5 } else { 4 };
        for _ in 0..before_key {
            AnyRef::decode(&mut fields)?;
        }
        let key = AnyRef::decode(&mut fields)?;
        let mut parts = SliceReader::new(key.value())?;
        let algorithm = AnyRef::decode(&mut parts)?;
        let bits = BitStringRef::decode(&mut parts)?;
        Ok(PublicKey {
            whole: key.to_der()?.into(),
            algorithm: algorithm.value(),
            bits: bits.raw_bytes(),
        })
    }
}

/// What is inside of the first element of a certificate, of which nothing else is read.
fn inside_of(certificate: &[u8]) -> Result<&[u8], x509_cert::der::Error> {
    Ok(AnyRef::from_der(certificate)?.value())
}

/// Reads what is inside of the first of some elements.
fn inside(elements: &[u8]) -> Result<SliceReader<'_>, x509_cert::der::Error> {
    let mut reader = SliceReader::new(elements)?;
    SliceReader::new(AnyRef::decode(&mut reader)?.value())
}

#[cfg(all(test, feature = "self-signed"))]
mod tests {
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::{ServerConfig, SupportedProtocolVersion};
    use tokio_rustls::{TlsAcceptor, TlsConnector};
    use x509_cert::der::Reader;

    use super::*;
    use crate::tls::{Roots, client_config};

    /// A sequence of elements.
    fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
        let inside = parts.concat();
        let any = AnyRef::new(x509_cert::der::Tag::Sequence, &inside).expect("it is short");
        any.to_der().expect("it is short")
    }

    /// The certificate as of version 1: without the version, and without extensions. Nobody verifies its signature.
    fn of_version_1(certificate: &[u8]) -> Vec<u8> {
        let whole = inside_of(certificate).expect("DER");
        let mut parts = SliceReader::new(whole).expect("DER");
        let mut next = || AnyRef::decode(&mut parts).expect("DER");
        let (_, algorithm, signature) = (next(), next(), next());
        let mut fields = inside(whole).expect("DER");
        AnyRef::decode(&mut fields).expect("the version");
        let kept: Vec<_> = (0..6)
            .map(|_| {
                AnyRef::decode(&mut fields)
                    .and_then(|field| field.to_der())
                    .expect("DER")
            })
            .collect();
        assert!(!fields.is_finished(), "there were extensions");
        let rest = [algorithm, signature].map(|part| part.to_der().expect("DER"));
        sequence(&[vec![sequence(&kept)], rest.to_vec()].concat())
    }

    /// Whether a client that accepts any certificate shakes hands with a server that has this one and this key.
    async fn accepts(
        certificate: &[u8],
        key: &[u8],
        version: &'static SupportedProtocolVersion,
    ) -> Result<(), String> {
        let provider = Arc::new(default_provider());
        let key = PrivateKeyDer::try_from(key.to_vec()).expect("a key");
        let key = provider.key_provider.load_private_key(key).expect("a key");
        let certified = CertifiedKey::new(vec![certificate.to_vec().into()], key);
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        let client = client_config(Roots::InsecureAcceptAny).expect("a client");
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = ServerName::try_from("localhost").expect("a name");
        let connected = TlsConnector::from(Arc::new(client)).connect(name, near);
        let accepted = TlsAcceptor::from(Arc::new(server)).accept(far);
        let (connected, accepted) = tokio::join!(connected, accepted);
        connected
            .map(drop)
            .map_err(|error| format!("{error}; the server: {:?}", accepted.err()))
    }

    #[tokio::test]
    async fn any_certificate_is_accepted_also_of_version_1_if_the_server_has_its_key() {
        let versions = [&rustls::version::TLS12, &rustls::version::TLS13];
        for algorithm in [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ED25519,
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
            let other = rcgen::KeyPair::generate_for(algorithm).expect("a key");
            let fields = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
            let made = fields.self_signed(&key).expect("made");
            for version in versions {
                for certificate in [made.der().to_vec(), of_version_1(made.der())] {
                    let right = accepts(&certificate, &key.serialize_der(), version).await;
                    assert_eq!(right, Ok(()), "{algorithm:?} {version:?}");
                    let wrong = accepts(&certificate, &other.serialize_der(), version).await;
                    assert!(wrong.is_err(), "{algorithm:?} {version:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_certificate_has_no_key() {
        let key = rcgen::KeyPair::generate().expect("a key");
        for octets in [&b""[..], b"\x30", b"\x30\x00", b"\x30\x02\x30\x00", &[0x30; 300]] {
            let accepted = accepts(octets, &key.serialize_der(), &rustls::version::TLS13).await;
            assert!(accepted.is_err(), "{octets:?}");
        }
    }
}
