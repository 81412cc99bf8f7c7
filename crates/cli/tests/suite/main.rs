//! The program as a user runs it, in one test program because one is linked faster than twelve. Foreign peers, denied system
//! calls and long runs have programs of their own.

#[path = "../support/mod.rs"]
mod support;

mod advice;
mod bad_input;
mod causes;
mod dead_servers;
mod decoded;
#[cfg(unix)]
mod ends;
mod folders;
mod get_options;
mod good_input;
#[cfg(target_os = "linux")]
mod guide;
mod http1;
mod http1_client;
mod kept;
#[cfg(unix)]
mod link;
mod log;
mod network;
mod pages;
mod partial;
#[cfg(unix)]
mod put_checksum;
#[cfg(target_os = "linux")]
mod put_trees;
mod recursive;
mod redirects;
mod refused_rest;
mod resume;
mod said;
mod secrets;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod shared_folder;
mod silence;
#[cfg(target_os = "linux")]
mod streams;
mod tls;
#[cfg(unix)]
mod uploads;
mod uploads_again;
#[cfg(unix)]
mod uploads_later;
mod uploads_offered;
mod uploads_resumed;
mod wrong_input;
mod wrong_network;
