//! The secrets of connections, for programs that show what was sent over TLS.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::{KeyLog, KeyLogFile};

use crate::error::{Error, ErrorKind};

/// The variable that curl, browsers and other programs obey too.
const VARIABLE: &str = "SSLKEYLOGFILE";

/// Opens the file that the variable `SSLKEYLOGFILE` names, for the secrets of TLS connections (RFC 9850). Wireshark and
/// other programs decrypt recorded traffic with them. `None` if the variable is not set, or is empty.
///
/// Whoever can read the file can decrypt the connections. The library never reads the variable by itself; a program
/// that calls this should tell its user. Lines are added to a file that exists; a new one can be read by its owner alone
/// (Unix). If a line cannot be written later, it is left out.
///
/// ```
/// # fn client() -> Result<fullbore::Client, fullbore::Error> {
/// use fullbore::tls::{self, Roots};
///
/// let mut config = tls::client_config(Roots::Platform)?;
/// if let Some(log) = tls::key_log_from_env()? {
///     eprintln!("the secrets of TLS are written to the file of SSLKEYLOGFILE");
///     config.key_log = log;
/// }
/// fullbore::Client::builder().tls_config(config.into()).build()
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] when the file cannot be opened.
pub fn key_log_from_env() -> Result<Option<Arc<dyn KeyLog>>, Error> {
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    // rustls does not tell whether it could.
    let path = Path::new(&path);
    open(path).map_err(|error| {
        let text = format!("the file {} of {VARIABLE} cannot be opened", path.display());
        Error::with_source(ErrorKind::Config, text, error)
    })?;
    Ok(Some(Arc::new(KeyLogFile::new())))
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
