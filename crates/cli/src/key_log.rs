//! The secrets of TLS for the file of SSLKEYLOGFILE, which curl and browsers obey too.

use std::sync::Arc;

use fullbore::rustls::KeyLog;
use fullbore::tls;

use crate::exit;
use crate::run;

/// What SSLKEYLOGFILE asks for. If `tells`, standard error says so: whoever can read the file can decrypt the connections.
///
/// The variable may be meant for another program, so a file that cannot be opened stops nothing.
pub(crate) fn from_env(tells: bool) -> Option<Arc<dyn KeyLog>> {
    let (log, sentence) = match tls::key_log_from_env() {
        Ok(None) => return None,
        Ok(Some(log)) => {
            let text = "warning: SSLKEYLOGFILE is set: the secrets of TLS connections are written to its file, and whoever can read \
                        it can decrypt them";
            (Some(log), text.to_owned())
        }
        Err(error) => {
            let reason = exit::wrong_setting(&error);
            (None, format!("note: SSLKEYLOGFILE is ignored: {reason}"))
        }
    };
    if tells {
        run::complain(&sentence);
    }
    log
}
