//! How a client verifies certificates: against given ones, or not at all.

use std::sync::Arc;

use tokio_rustls::rustls;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, ExtendedKeyPurpose, OtherError, RootCertStore, SignatureScheme,
};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::oid::db::rfc5280::{ID_KP_CLIENT_AUTH, ID_KP_SERVER_AUTH};
use x509_cert::ext::pkix::{ExtendedKeyUsage, KeyUsage};

/// Trusts given certificates: as authorities for what they have signed, and each also as the certificate of a server
/// itself. `openssl req -x509` makes certificates that are both, which webpki accepts only as authorities.
#[derive(Debug)]
pub(super) struct Given {
    authorities: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Given {
    pub(super) fn new(
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
            certificates,
        })
    }
}

impl ServerCertVerifier for Given {
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
            Err(_) if self.certificates.contains(certificate) => verify_given(certificate, name, now),
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

/// Accepts any certificate, but checks that the peer has its key.
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
