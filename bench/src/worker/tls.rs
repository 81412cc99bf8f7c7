//! TLS for the clients here: they accept any certificate, and offer only the cipher suite that h2load is told to use.

use std::sync::Arc;

use fullbore::tls::{Roots, client_config};
use tokio_rustls::rustls::{CipherSuite, ClientConfig};

use super::Failure;

pub(super) fn config() -> Result<Arc<ClientConfig>, Failure> {
    let every = client_config(Roots::InsecureAcceptAny)?;
    let mut provider = (**every.crypto_provider()).clone();
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    // Of the whole process, which makes one configuration; a second call finds the same installed.
    let _ = provider.install_default();
    Ok(Arc::new(client_config(Roots::InsecureAcceptAny)?))
}
