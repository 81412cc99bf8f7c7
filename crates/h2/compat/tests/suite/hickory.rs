//! hickory's DNS over HTTPS on `crates/h2`, before a server of hyper on it.

use crate::dns;
use crate::tls::Tls;

#[tokio::test]
async fn hickory_resolves_names_over_https() {
    let tls = Tls::new();
    let (address, server) = dns::dns_server(&tls.server).await;
    dns::resolves(&tls.client, address).await;
    server.abort();
}
