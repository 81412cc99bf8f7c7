//! The certificate of `serve`, which is read anew while the server runs.
//!
//! A server takes the certificate of each handshake from [`Certificate`]. It looks for changed files every two seconds, and
//! reads them at once on SIGHUP. A pair that cannot be used leaves the old one in use, and is reported.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use fullbore::rustls::ServerConfig;
use fullbore::rustls::client::verify_server_name;
use fullbore::rustls::pki_types::pem::PemObject as _;
use fullbore::rustls::pki_types::{CertificateDer, ServerName};
use fullbore::rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use fullbore::rustls::sign::CertifiedKey;
use fullbore::tls;
use ring::digest;

use super::self_signed::{self, Kept, Pair};
use crate::exit::{Exit, Failure, chain};
use crate::run;

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// Where the certificate comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// `--cert` and `--key`.
    Files { cert: PathBuf, key: PathBuf },
    /// `--self-signed`, for these names. Without a state folder it is not kept.
    SelfSigned { names: Vec<String>, kept: Option<Kept> },
}

/// The certificate in use.
pub(super) struct Certificate {
    source: Source,
    used: RwLock<Used>,
}

struct Used {
    resolver: Arc<dyn ResolvesServerCert>,
    /// The server's own certificate.
    leaf: CertificateDer<'static>,
    /// When a self-signed one expires.
    expiry: Option<SystemTime>,
    /// Tells whether the content of the files has changed.
    digest: Vec<u8>,
}

/// What changes when a file does.
type Stamp = Option<[(SystemTime, u64); 2]>;

impl Certificate {
    /// Reads or makes the certificate. Clients need a certificate of one of `authorities`, if there are some. Returns the
    /// configuration too, which takes the certificate of each handshake from here.
    ///
    /// # Errors
    /// The certificate cannot be read, made or used.
    pub(super) fn load(
        source: Source,
        authorities: Option<&Path>,
    ) -> Result<(Arc<Self>, ServerConfig), Failure> {
        let pair = source.read()?;
        let used = source.used(&pair)?;
        let config = match authorities {
            None => tls::server_config(&pair.cert, &pair.key),
            Some(path) => tls::server_config_for_clients_of(&pair.cert, &pair.key, &read(path)?),
        };
        // The pair can be used: what remains is the file of the authorities.
        let mut config = config.map_err(|error| {
            let path = authorities.unwrap_or(Path::new("")).display();
            Failure::usage(format!("--client-ca {path}: {}", chain(&error)))
        })?;
        let certificate = Arc::new(Self {
            source,
            used: RwLock::new(used),
        });
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&certificate) as _;
        config.cert_resolver = resolver;
        Ok((certificate, config))
    }

    /// Whether the certificate is valid for a host, which may be an address of IP.
    pub(super) fn is_valid_for(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host) else {
            return false;
        };
        let used = self.used.read().unwrap_or_else(PoisonError::into_inner);
        let parsed = ParsedCertificate::try_from(&used.leaf);
        parsed.is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }

    /// The file that a client needs to trust a self-signed certificate, and when that expires.
    pub(super) fn trusted_by(&self) -> Option<(&Path, SystemTime)> {
        let Source::SelfSigned { kept: Some(kept), .. } = &self.source else {
            return None;
        };
        let expiry = self.used.read().unwrap_or_else(PoisonError::into_inner).expiry?;
        Some((&kept.cert, expiry))
    }

    /// Reads the certificate anew for as long as the server runs.
    pub(super) async fn keep_current(self: Arc<Self>, mut hangup: Hangup) {
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut watch = Watch::new(self.source.stamp());
        loop {
            let told = tokio::select! {
                _ = tick.tick() => false,
                () = hangup.next() => true,
            };
            let this = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || {
                let sentence = watch.look(&this, told);
                (watch, sentence)
            });
            let Ok((looked, sentence)) = looked.await else {
                return;
            };
            watch = looked;
            if let Some(sentence) = sentence {
                run::complain(&sentence);
            }
        }
    }

    /// Reads the pair again, and uses it if it is another one. Returns whether it was.
    fn read_again(&self) -> Result<bool, Failure> {
        let pair = self.source.read()?;
        let used = self.source.used(&pair)?;
        let mut current = self.used.write().unwrap_or_else(PoisonError::into_inner);
        let changed = current.digest != used.digest;
        *current = used;
        Ok(changed)
    }

    fn is_due(&self) -> bool {
        let used = self.used.read().unwrap_or_else(PoisonError::into_inner);
        matches!(self.source, Source::SelfSigned { .. })
            && self_signed::is_due(used.expiry, SystemTime::now())
    }
}

/// What is known of the files.
struct Watch {
    /// As they were when they were read.
    read: Stamp,
    /// As they were when they were looked at last.
    last: Stamp,
    /// How many looks remain before a self-signed certificate is checked for its age.
    until_due: u32,
}

impl Watch {
    /// An hour.
    const LOOKS: u32 = 1_800;

    fn new(stamp: Stamp) -> Self {
        Self {
            read: stamp,
            last: stamp,
            until_due: 0,
        }
    }

    /// Reads the files if the user says so, or if they have changed and then stayed as they are for one look: the key may
    /// follow its certificate. Returns what to report.
    fn look(&mut self, certificate: &Certificate, told: bool) -> Option<String> {
        let stamp = certificate.source.stamp();
        let changed = stamp != self.read && stamp == self.last;
        self.last = stamp;
        let due = self.until_due == 0 && certificate.is_due();
        self.until_due = self.until_due.checked_sub(1).unwrap_or(Self::LOOKS);
        if !(told || changed || due) {
            return None;
        }
        let read = certificate.read_again();
        // A new self-signed certificate has changed the files.
        self.read = if due { certificate.source.stamp() } else { stamp };
        self.last = self.read;
        match read {
            Ok(true) => Some(format!("the certificate in {} was reloaded", certificate.source)),
            Ok(false) if told => Some(format!(
                "the certificate in {} has not changed",
                certificate.source
            )),
            Ok(false) => None,
            Err(failure) => Some(format!("the old certificate stays in use: {failure}")),
        }
    }
}

impl Source {
    fn read(&self) -> Result<Pair, Failure> {
        match self {
            Source::Files { cert, key } => Ok(Pair {
                cert: read(cert)?,
                key: read(key)?,
            }),
            Source::SelfSigned { names, kept: None } => self_signed::make(names),
            Source::SelfSigned {
                names,
                kept: Some(kept),
            } => kept.load_or_make(names),
        }
    }

    /// What a pair is used as.
    fn used(&self, pair: &Pair) -> Result<Used, Failure> {
        let config = tls::server_config(&pair.cert, &pair.key).map_err(|error| match self {
            Source::Files { cert, key } => Failure::usage(format!(
                "--cert {} with --key {}: {error}",
                cert.display(),
                key.display()
            )),
            Source::SelfSigned { .. } => Failure::new(Exit::Tls, chain(&error)),
        })?;
        // It was read from the same text just before.
        let leaf =
            CertificateDer::from_pem_slice(&pair.cert).unwrap_or_else(|_| CertificateDer::from(Vec::new()));
        let mut content = digest::Context::new(&digest::SHA256);
        content.update(&pair.cert);
        content.update(&pair.key);
        Ok(Used {
            resolver: config.cert_resolver,
            leaf,
            expiry: self_signed::expiry(&pair.cert),
            digest: content.finish().as_ref().to_vec(),
        })
    }

    /// The times and lengths of the files.
    fn stamp(&self) -> Stamp {
        let (cert, key) = match self {
            Source::Files { cert, key } => (cert, key),
            Source::SelfSigned { kept, .. } => kept.as_ref().map(|kept| (&kept.cert, &kept.key))?,
        };
        let of = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        Some([of(cert)?, of(key)?])
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Files { cert, .. } => cert.display().fmt(f),
            Source::SelfSigned { kept: Some(kept), .. } => kept.cert.display().fmt(f),
            Source::SelfSigned { kept: None, .. } => f.write_str("memory"),
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let used = self.used.read().unwrap_or_else(PoisonError::into_inner);
        used.resolver.resolve(hello)
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::from_io("read", path, &error))
}

/// SIGHUP: what can be read again is to be read: the certificate.
pub(super) struct Hangup {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
    /// Whether the program began in a terminal, whose end also comes as SIGHUP.
    #[cfg(unix)]
    terminal: bool,
}

impl Hangup {
    /// Replaces the default action, which ends the process.
    #[cfg(unix)]
    pub(super) fn listen() -> Result<Self, Failure> {
        use std::io::IsTerminal as _;
        use tokio::signal::unix::{SignalKind, signal};
        let signal = signal(SignalKind::hangup())
            .map_err(|error| Failure::new(Exit::Other, format!("cannot handle signals: {error}")))?;
        Ok(Self {
            signal,
            terminal: std::io::stdin().is_terminal(),
        })
    }

    #[cfg(not(unix))]
    pub(super) fn listen() -> Result<Self, Failure> {
        Ok(Self {})
    }

    /// Without a certificate: keeps the signal from ending the server, since it is how services are told to read their
    /// files again.
    pub(super) async fn read_nothing(mut self) {
        loop {
            self.next().await;
            run::complain(&"SIGHUP: there is no certificate to read again");
        }
    }

    /// Waits for the signal. When the terminal is gone, the program is told to end.
    #[cfg(unix)]
    async fn next(&mut self) {
        use std::io::IsTerminal as _;
        self.signal.recv().await;
        if self.terminal && !std::io::stdin().is_terminal() {
            use rustix::process::{Signal, getpid, kill_process};
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(source: &Source, name: &str) {
        let Source::Files { cert, key } = source else {
            panic!("no files");
        };
        let pair = self_signed::make(&[name.to_owned()]).unwrap();
        fs::write(cert, pair.cert).unwrap();
        fs::write(key, pair.key).unwrap();
    }

    fn files(folder: &Path) -> Source {
        Source::Files {
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        }
    }

    #[test]
    fn a_changed_certificate_is_used_once_its_files_have_settled() {
        let folder = tempfile::tempdir().unwrap();
        let source = files(folder.path());
        write(&source, "a.example");
        let (certificate, _) = Certificate::load(source, None).unwrap();
        let mut watch = Watch::new(certificate.source.stamp());
        assert_eq!(watch.look(&certificate, false), None);
        assert!(certificate.is_valid_for("a.example") && !certificate.is_valid_for("b.example"));
        // Of another length, for the clock of a file system may be coarse.
        write(&certificate.source, "bb.example");
        assert_eq!(watch.look(&certificate, false), None);
        assert!(certificate.is_valid_for("a.example"));
        let said = watch.look(&certificate, false).unwrap();
        assert!(said.ends_with("was reloaded"), "{said}");
        assert!(certificate.is_valid_for("bb.example") && !certificate.is_valid_for("a.example"));
        assert_eq!(watch.look(&certificate, false), None);
        let said = watch.look(&certificate, true).unwrap();
        assert!(said.ends_with("has not changed"), "{said}");
    }

    #[test]
    fn a_pair_that_cannot_be_used_leaves_the_old_one_and_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let source = files(folder.path());
        write(&source, "a.example");
        let (certificate, _) = Certificate::load(source, None).unwrap();
        let mut watch = Watch::new(certificate.source.stamp());
        fs::write(folder.path().join("cert.pem"), "no certificate").unwrap();
        assert_eq!(watch.look(&certificate, false), None);
        let said = watch.look(&certificate, false).unwrap();
        assert!(
            said.starts_with("the old certificate stays in use: --cert"),
            "{said}"
        );
        assert_eq!(watch.look(&certificate, false), None);
        assert!(certificate.is_valid_for("a.example"));
        fs::remove_file(folder.path().join("cert.pem")).unwrap();
        let said = watch.look(&certificate, true).unwrap();
        assert!(said.contains("cannot read"), "{said}");
        assert!(certificate.is_valid_for("a.example"));
    }

    #[test]
    fn a_self_signed_certificate_is_checked_for_its_age_once_an_hour() {
        let names = vec!["a.example".to_owned()];
        let (certificate, _) = Certificate::load(Source::SelfSigned { names, kept: None }, None).unwrap();
        let mut watch = Watch::new(certificate.source.stamp());
        assert_eq!(watch.look(&certificate, false), None, "it is new");
        certificate.used.write().unwrap().expiry = Some(SystemTime::UNIX_EPOCH);
        // There is a look every two seconds.
        let mut looks = 1..;
        let said = looks.find_map(|look| watch.look(&certificate, false).map(|said| (look, said)));
        let (look, said) = said.unwrap();
        assert_eq!(look, 1_801);
        assert!(said.ends_with("was reloaded"), "{said}");
        assert!(!certificate.is_due());
    }
}
