//! fullbore against the world: every client and server that users are likely to have at the other end, and h2spec.
//!
//! A trial whose peer is not on this machine is listed as ignored with the reason beside its name; with
//! `FULLBORE_PEERS=required` it fails, and every peer gets files of every size up to 256 MiB, which take minutes. `FULLBORE_BIN` names another program than the one that cargo built. The suite talks
//! to 127.0.0.1 only, ends every process that it started, and removes its files.

#[path = "interop/autobahn.rs"]
mod autobahn;
#[path = "interop/browser.rs"]
mod browser;
#[path = "interop/certs.rs"]
mod certs;
#[path = "interop/clients.rs"]
mod clients;
#[path = "interop/fetch_trials.rs"]
mod fetch_trials;
#[path = "interop/files.rs"]
mod files;
#[path = "interop/fullbore.rs"]
mod fullbore;
#[path = "interop/grpc.rs"]
mod grpc;
#[path = "interop/h2spec.rs"]
mod h2spec;
#[path = "interop/http1_clients.rs"]
mod http1_clients;
#[path = "interop/listing.rs"]
mod listing;
#[path = "interop/many_files.rs"]
mod many_files;
#[path = "interop/mirrors.rs"]
mod mirrors;
#[path = "interop/openssl.rs"]
mod openssl;
#[path = "interop/peers.rs"]
mod peers;
#[path = "interop/proxied_pages.rs"]
mod proxied_pages;
#[path = "interop/proxies.rs"]
mod proxies;
#[path = "interop/recipes.rs"]
mod recipes;
#[path = "interop/relay.rs"]
mod relay;
#[path = "interop/resumed_uploads.rs"]
mod resumed_uploads;
#[path = "interop/serve_trials.rs"]
mod serve_trials;
#[path = "interop/servers.rs"]
mod servers;
#[path = "interop/smuggling.rs"]
mod smuggling;
#[path = "interop/web_sockets.rs"]
mod web_sockets;

use fullbore_testing::process;
use libtest_mimic::Arguments;

fn main() {
    let mut arguments = Arguments::from_args();
    // A trial is two or three processes already; more at once would only make each of them wait.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let mut trials = serve_trials::trials();
    trials.extend(fetch_trials::trials());
    trials.extend(many_files::trials());
    trials.extend(h2spec::trials());
    trials.extend(openssl::trials());
    trials.extend(browser::trials());
    trials.extend(listing::trials());
    trials.extend(mirrors::trials());
    trials.extend(proxies::trials());
    trials.extend(resumed_uploads::trials());
    trials.extend(smuggling::trials());
    trials.extend(grpc::trials());
    trials.extend(recipes::trials());
    trials.extend(proxied_pages::trials());
    trials.extend(web_sockets::trials());
    trials.extend(autobahn::trials());
    let conclusion = libtest_mimic::run(&arguments, trials);
    files::clean_up();
    conclusion.exit();
}
