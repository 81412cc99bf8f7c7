//! Certificates and keys from PEM texts, with a sentence for each kind of file that people give by mistake.

use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;

/// All certificates of a text. There is at least one.
pub(super) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| damaged("the certificates cannot be read", &error))?;
    match certificates.is_empty() {
        true => Err(Error::config(no_certificate(text))),
        false => Ok(certificates),
    }
}

/// The first private key of a text.
pub(super) fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    // PKCS #8 says it in the label, OpenSSL's older format in a field (RFC 1421 section 4.6.1.1).
    if has(text, "BEGIN ENCRYPTED PRIVATE KEY") || has(text, "Proc-Type: 4,ENCRYPTED") {
        return Err(Error::config(
            "the private key is encrypted; decrypt it into a file that only you can read: \
             openssl pkey -in FILE -out DECRYPTED",
        ));
    }
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound => Error::config(no_key(text)),
        error => damaged("the private key cannot be read", &error),
    })
}

fn no_certificate(text: &[u8]) -> &'static str {
    match Form::of(text) {
        Form::Pkcs12 => {
            "the certificate is in PKCS #12, not in PEM; convert it: openssl pkcs12 -in FILE -nokeys -out PEM"
        }
        Form::Der => {
            "the certificate is in DER, not in PEM; convert it: openssl x509 -inform der -in FILE -out PEM"
        }
        Form::Text if has(text, "PRIVATE KEY-----") => {
            "the PEM text has a private key and no certificate; have the two files been swapped?"
        }
        Form::Text
            if has(text, "BEGIN CERTIFICATE REQUEST") || has(text, "BEGIN NEW CERTIFICATE REQUEST") =>
        {
            "the PEM text has a request for a certificate and no certificate; use the certificate that an authority \
             made of it"
        }
        Form::Text if has(text, "BEGIN TRUSTED CERTIFICATE") => {
            "the certificate is in OpenSSL's own format, not in PEM; convert it: openssl x509 -in FILE -out PEM"
        }
        Form::Text if has(text, "BEGIN PKCS7") => {
            "the certificates are in PKCS #7, not in PEM; convert them: openssl pkcs7 -print_certs -in FILE -out PEM"
        }
        Form::Text => "the PEM text has no certificate, which begins with -----BEGIN CERTIFICATE-----",
    }
}

fn no_key(text: &[u8]) -> &'static str {
    match Form::of(text) {
        Form::Pkcs12 => {
            "the private key is in PKCS #12, not in PEM; convert it: openssl pkcs12 -in FILE -nocerts -nodes -out PEM"
        }
        Form::Der => {
            "the private key is in DER, not in PEM; convert it: openssl pkey -inform der -in FILE -out PEM"
        }
        Form::Text if has(text, "BEGIN OPENSSH PRIVATE KEY") => {
            "the private key is in OpenSSH's format, not in PEM; convert it: ssh-keygen -p -m PEM -f FILE"
        }
        Form::Text if has(text, "BEGIN CERTIFICATE-----") => {
            "the PEM text has a certificate and no private key; have the two files been swapped?"
        }
        Form::Text => {
            "the PEM text has no private key; use an unencrypted key in PKCS #8, PKCS #1 or SEC1, which begins with \
             -----BEGIN PRIVATE KEY----- or the like"
        }
    }
}

/// The format of what was given.
enum Form {
    Text,
    Der,
    Pkcs12,
}

impl Form {
    fn of(text: &[u8]) -> Self {
        // An ASN.1 SEQUENCE with a length in the long form: every certificate and key is longer than 127 octets.
        let content = match text {
            [0x30, 0x81, _, content @ ..] | [0x30, 0x82, _, _, content @ ..] => content,
            // In BER, which PKCS #12 may be in, the length may be indefinite.
            [0x30, 0x80, content @ ..] | [0x30, 0x83, _, _, _, content @ ..] => content,
            _ => return Form::Text,
        };
        match content {
            // RFC 7292 section 4: it begins with the version 3.
            [0x02, 0x01, 0x03, ..] => Form::Pkcs12,
            _ => Form::Der,
        }
    }
}

fn has(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|window| window == part.as_bytes())
}

/// A section that cannot be decoded.
fn damaged(what: &str, error: &pem::Error) -> Error {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end; is the file complete?",
        pem::Error::IllegalSectionStart { .. } => "a line with -----BEGIN is malformed",
        pem::Error::Base64Decode(_) => "a section is not in base64; is the file damaged?",
        pem::Error::SectionTooLarge => "a section is too large",
        _ => "the text is not in PEM",
    };
    Error::config(format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const NO_PEM: &[u8] = b"-----BEGIN NOTHING-----";
    const CERTIFICATE_IN_NO_BASE64: &[u8] = b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n";
    const ENCRYPTED_KEY: &[u8] =
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    const OLD_ENCRYPTED_KEY: &[u8] = b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
        DEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    const CUT_KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----\nAAAA\n";
    const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const REQUEST: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
    const TRUSTED: &[u8] = b"-----BEGIN TRUSTED CERTIFICATE-----\nAAAA\n-----END TRUSTED CERTIFICATE-----\n";
    const OPENSSH: &[u8] = b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
    const PKCS7: &[u8] = b"-----BEGIN PKCS7-----\nAAAA\n-----END PKCS7-----\n";
    const DER: &[u8] = &[0x30, 0x82, 0x01, 0x00, 0x30, 0x81, 0xa0];
    const PKCS12: &[u8] = &[0x30, 0x82, 0x09, 0x5a, 0x02, 0x01, 0x03, 0x30];

    #[track_caller]
    fn refused<T>(result: Result<T, Error>, part: &str) {
        let error = result.err().expect("the text was accepted");
        assert_eq!(error.kind(), ErrorKind::Config);
        let said = error.to_string();
        assert!(said.contains(part), "{said}");
        assert!(std::error::Error::source(&error).is_none(), "{said}");
    }

    #[test]
    fn a_text_without_certificates_is_refused_and_says_what_it_has() {
        for (text, part) in [
            (&b""[..], "has no certificate, which begins with -----BEGIN"),
            (
                b"no PEM at all",
                "has no certificate, which begins with -----BEGIN",
            ),
            (ENCRYPTED_KEY, "have the two files been swapped?"),
            (REQUEST, "a request for a certificate and no certificate"),
            (TRUSTED, "openssl x509 -in FILE"),
            (PKCS7, "openssl pkcs7 -print_certs"),
            (DER, "openssl x509 -inform der"),
            (PKCS12, "openssl pkcs12 -in FILE -nokeys"),
        ] {
            refused(certificates(text), part);
        }
    }

    #[test]
    fn a_certificate_that_cannot_be_decoded_is_refused_with_the_reason() {
        refused(
            certificates(CERTIFICATE_IN_NO_BASE64),
            "the certificates cannot be read: a section is not in base64",
        );
        refused(
            certificates(NO_PEM),
            "the certificates cannot be read: a section has no end",
        );
    }

    #[test]
    fn a_text_without_a_private_key_is_refused_and_says_what_it_has() {
        for (text, part) in [
            (&b""[..], "unencrypted key in PKCS #8, PKCS #1 or SEC1"),
            (CERTIFICATE, "have the two files been swapped?"),
            (OPENSSH, "ssh-keygen -p -m PEM"),
            (DER, "openssl pkey -inform der"),
            (PKCS12, "openssl pkcs12 -in FILE -nocerts -nodes"),
        ] {
            refused(private_key(text), part);
        }
    }

    #[test]
    fn an_encrypted_key_is_refused_as_such() {
        for text in [ENCRYPTED_KEY, OLD_ENCRYPTED_KEY] {
            refused(private_key(text), "is encrypted; decrypt it");
        }
    }

    #[test]
    fn a_private_key_that_is_cut_short_is_refused_with_the_reason() {
        refused(
            private_key(CUT_KEY),
            "the private key cannot be read: a section has no end",
        );
    }
}
