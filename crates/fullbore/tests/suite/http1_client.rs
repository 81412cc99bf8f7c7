//! The client over HTTP/1.1: which version it speaks with whom, what it sends once and what twice, and what it makes of
//! servers that break the rules. The servers are a few lines of text each.

mod exchange;
mod failures;
mod raw;
mod reuse;
mod rounds;
mod versions;
