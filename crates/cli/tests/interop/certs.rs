//! The certificates of one run: an authority, and a server's certificate for 127.0.0.1 and localhost that it signed.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::files::workshop;
use crate::process::{Fault, Outcome};

/// Where the PEM files are.
#[derive(Clone)]
pub(crate) struct Certs {
    /// The authority's certificate, for clients.
    pub(crate) authority: PathBuf,
    /// The server's certificate.
    pub(crate) chain: PathBuf,
    /// The server's private key.
    pub(crate) key: PathBuf,
    /// Certificate and key in one file, as haproxy wants them.
    pub(crate) both: PathBuf,
}

/// Makes them on first use.
pub(crate) fn certs() -> Outcome<&'static Certs> {
    static CERTS: OnceLock<Outcome<Certs>> = OnceLock::new();
    CERTS.get_or_init(make).as_ref().map_err(Fault::clone)
}

fn make() -> Outcome<Certs> {
    let fault = |error: rcgen::Error| Fault::from(format!("certificate: {error}"));
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "fullbore interop authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_key = KeyPair::generate().map_err(fault)?;
    let authority = params.self_signed(&authority_key).map_err(fault)?;
    let issuer = Issuer::new(params, authority_key);

    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).map_err(fault)?;
    params.distinguished_name.push(DnType::CommonName, "localhost");
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(fault)?;
    let leaf = params.signed_by(&key, &issuer).map_err(fault)?;

    let folder = workshop().join("certs");
    fs::create_dir_all(&folder)?;
    let write = |name: &str, text: String| -> Outcome<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    };
    Ok(Certs {
        authority: write("authority.pem", authority.pem())?,
        both: write("both.pem", leaf.pem() + &key.serialize_pem())?,
        chain: write("chain.pem", leaf.pem())?,
        key: write("key.pem", key.serialize_pem())?,
    })
}
