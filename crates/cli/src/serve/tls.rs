//! The TLS configuration of `serve`: the certificate that the user names, or a self-signed one.

use std::net::SocketAddr;
use std::path::Path;

use fullbore::rustls::ServerConfig;
use fullbore::tls;

use crate::args::ServeArgs;
use crate::exit::{Exit, Failure, chain};

pub(super) fn tls_config(args: &ServeArgs, address: SocketAddr) -> Result<ServerConfig, Failure> {
    if let (Some(cert), Some(key)) = (&args.cert, &args.key) {
        return tls::server_config(&read(cert)?, &read(key)?).map_err(|error| {
            Failure::usage(format!(
                "--cert {} with --key {}: {error}",
                cert.display(),
                key.display()
            ))
        });
    }
    let host = address.ip().to_string();
    let mut names = vec!["localhost", "127.0.0.1", "::1"];
    if !address.ip().is_unspecified() && !names.contains(&host.as_str()) {
        names.push(&host);
    }
    let made = |error: fullbore::Error| Failure::new(Exit::Tls, chain(&error));
    let signed = tls::self_signed(&names).map_err(made)?;
    tls::server_config(signed.cert_pem.as_bytes(), signed.key_pem.as_bytes()).map_err(made)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::from_io("read", path, &error))
}
