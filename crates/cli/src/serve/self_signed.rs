//! The self-signed certificates that `serve` keeps, one for each set of names, in the user's state folder.
//!
//! The private key can be read by the user alone. A certificate is made anew when little is left of its time.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fullbore::rustls::pki_types::CertificateDer;
use fullbore::rustls::pki_types::pem::PemObject as _;
use fullbore::tls;
use ring::digest;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::checksum::digits;
use crate::exit::{Exit, Failure, chain};
use crate::transfer::{private, state_folder};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long a certificate is valid.
pub(super) const VALIDITY: Duration = DAY.saturating_mul(90);

/// A certificate is made anew when less than this is left of its time.
const RENEWAL: Duration = DAY.saturating_mul(30);

/// A certificate and its key, as PEM.
pub(super) struct Pair {
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
}

/// The files of the certificate for a set of names.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl Kept {
    /// The files for these names in a folder. A hash tells sets of names apart.
    pub(super) fn in_folder(folder: &Path, names: &[String]) -> Self {
        let hash = digest::digest(&digest::SHA256, names.join("\n").as_bytes());
        let hash = digits(hash.as_ref().get(..6).unwrap_or_default());
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '-';
        let first = names.first().map_or("", String::as_str);
        let first: String = first
            .chars()
            .map(|letter| if plain(letter) { letter } else { '_' })
            .collect();
        Self {
            cert: folder.join(format!("{first}-{hash}.pem")),
            key: folder.join(format!("{first}-{hash}.key")),
        }
    }

    /// The pair on the disk, if it can be used for a while, or else a new one, which replaces it.
    ///
    /// # Errors
    /// The pair cannot be made or written.
    pub(super) fn load_or_make(&self, names: &[String]) -> Result<Pair, Failure> {
        let failed = |error: io::Error| Failure::from_io("keep the certificate in", &self.cert, &error);
        let folder = private::folder(&self.cert);
        state_folder::create(folder).map_err(failed)?;
        // Of several servers that start at once, one makes the certificate.
        let _lock = lock(&folder.join("lock")).map_err(failed)?;
        if let Ok(pair) = self.load() {
            return Ok(pair);
        }
        let pair = make(names)?;
        replace(&self.key, &pair.key, 0o600).map_err(failed)?;
        replace(&self.cert, &pair.cert, 0o644).map_err(failed)?;
        Ok(pair)
    }

    fn load(&self) -> Result<Pair, Unusable> {
        let pair = Pair {
            cert: std::fs::read(&self.cert).map_err(|_| Unusable)?,
            key: read_private(&self.key).map_err(|_| Unusable)?,
        };
        tls::server_config(&pair.cert, &pair.key).map_err(|_| Unusable)?;
        match is_due(expiry(&pair.cert), SystemTime::now()) {
            true => Err(Unusable),
            false => Ok(pair),
        }
    }
}

/// A pair on the disk that is missing, damaged, known to others or about to expire.
struct Unusable;

/// Makes a pair.
///
/// # Errors
/// A name is invalid.
pub(super) fn make(names: &[String]) -> Result<Pair, Failure> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let made = tls::self_signed_for(&names, VALIDITY);
    let made = made.map_err(|error| Failure::new(Exit::Tls, chain(&error)))?;
    Ok(Pair {
        cert: made.cert_pem.into_bytes(),
        key: made.key_pem.into_bytes(),
    })
}

/// The end of the period of validity; `None` for what is no certificate.
pub(super) fn expiry(pem: &[u8]) -> Option<SystemTime> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let certificate = Certificate::from_der(&der).ok()?;
    let end = certificate.tbs_certificate().validity().not_after;
    Some(SystemTime::UNIX_EPOCH + end.to_unix_duration())
}

/// Whether a certificate that expires then is to be made anew.
pub(super) fn is_due(expiry: Option<SystemTime>, now: SystemTime) -> bool {
    expiry.is_none_or(|expiry| expiry < now + RENEWAL)
}

/// Replaces a file at once.
fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = builder.tempfile_in(private::folder(path))?;
    file.write_all(content)?;
    Ok(file.into_temp_path().persist(path)?)
}

/// Reads a file that nobody but this user can read.
fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    private::open_without(path, 0o077)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Waits for the lock of this file, which is created.
fn lock(path: &Path) -> io::Result<File> {
    let file = private::options().create(true).open(path)?;
    #[cfg(unix)]
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_certificate_is_kept_for_its_names_and_its_key_is_private() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("a/self-signed");
        let (one, other) = (names(&["a.example", "::1"]), names(&["a.example"]));
        let kept = Kept::in_folder(&folder, &one);
        let first = kept.load_or_make(&one).unwrap();
        assert!(kept.load_or_make(&one).unwrap().cert == first.cert);
        assert_eq!(fs::metadata(&kept.key).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
        let other_kept = Kept::in_folder(&folder, &other);
        assert_ne!(other_kept.cert, kept.cert);
        assert!(other_kept.load_or_make(&other).unwrap().cert != first.cert);
        assert!(kept.load_or_make(&one).unwrap().cert == first.cert);
    }

    #[test]
    fn of_several_servers_that_start_at_once_one_makes_the_certificate() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("self-signed");
        let names = names(&["localhost"]);
        let start = std::sync::Barrier::new(8);
        let certificates: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let server = || {
                start.wait();
                Kept::in_folder(&folder, &names)
                    .load_or_make(&names)
                    .unwrap()
                    .cert
            };
            let servers: Vec<_> = (0..8).map(|_| scope.spawn(server)).collect();
            servers.into_iter().map(|server| server.join().unwrap()).collect()
        });
        assert!(
            certificates
                .iter()
                .all(|certificate| *certificate == certificates[0])
        );
    }

    #[test]
    fn one_server_at_a_time_has_the_lock_which_is_private() {
        use rustix::fs::{FlockOperation, flock};
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("lock");
        let held = lock(&path).unwrap();
        assert_eq!(held.metadata().unwrap().mode() & 0o7777, 0o600);
        let other = fs::File::open(&path).unwrap();
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(held);
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    }

    #[test]
    fn a_key_that_others_can_read_and_a_pair_that_is_damaged_are_replaced() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("self-signed");
        let names = names(&["localhost"]);
        let kept = Kept::in_folder(&folder, &names);
        let first = kept.load_or_make(&names).unwrap();
        fs::set_permissions(&kept.key, fs::Permissions::from_mode(0o640)).unwrap();
        let second = kept.load_or_make(&names).unwrap();
        assert!(second.cert != first.cert);
        assert_eq!(fs::metadata(&kept.key).unwrap().mode() & 0o7777, 0o600);
        fs::write(&kept.cert, &first.cert).unwrap();
        let third = kept.load_or_make(&names).unwrap();
        assert!(third.cert != first.cert && third.cert != second.cert);
        assert!(fs::read(&kept.cert).unwrap() == third.cert);
    }

    #[test]
    fn a_certificate_is_valid_for_90_days_and_due_30_days_before_its_end() {
        let pair = make(&names(&["localhost"])).unwrap();
        let expiry = expiry(&pair.cert).unwrap();
        let left = expiry.duration_since(SystemTime::now()).unwrap();
        assert!(left <= VALIDITY && left > VALIDITY - DAY, "{left:?}");
        assert!(!is_due(Some(expiry), expiry - RENEWAL));
        assert!(is_due(Some(expiry), expiry - RENEWAL + DAY));
        assert!(is_due(None, SystemTime::now()));
    }
}
