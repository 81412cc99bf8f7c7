//! The addresses that `serve` listens on.

use std::net::SocketAddr;

use fullbore::ErrorKind;
use tokio::net::TcpListener;

use crate::args::ServeArgs;
use crate::exit::{Exit, Failure};

pub(super) async fn listen(args: &ServeArgs) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(args.listen.as_str()).await;
    listener.map_err(|error| cannot_listen_on(&args.listen, &error))
}

pub(super) fn address(listener: &TcpListener, args: &ServeArgs) -> Result<SocketAddr, Failure> {
    listener
        .local_addr()
        .map_err(|error| Failure::new(Exit::LocalIo, format!("{}: {error}", args.listen)))
}

pub(super) fn cannot_listen(address: &str, error: &fullbore::Error) -> Failure {
    match std::error::Error::source(error) {
        Some(cause) if error.kind() == ErrorKind::Bind => cannot_listen_on(address, cause),
        _ => Failure::from_library(address, error),
    }
}

fn cannot_listen_on(address: &str, cause: &dyn std::error::Error) -> Failure {
    let advice = "use another address with --listen, such as 127.0.0.1:0 for any free port";
    Failure::new(
        Exit::LocalIo,
        format!("cannot listen on {address}: {cause}; {advice}"),
    )
}
