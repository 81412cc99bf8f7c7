//! What all uploads of a run share. Called by `put`, `many`, `resumable` and `named`.

use std::sync::Arc;
use std::time::Duration;

use fullbore::Client;

use crate::transfer::progress::Progress;
use crate::transfer::rate_limit::RateLimit;
use crate::transfer::redirects::Redirects;
use crate::transfer::request_fields::RequestFields;

use super::offer::Offers;

/// What all uploads of a run share.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) client: &'a Client,
    pub(super) request_fields: &'a RequestFields,
    pub(super) redirects: Redirects,
    pub(super) offers: &'a Offers,
    pub(super) rate: Option<&'a Arc<RateLimit>>,
    pub(super) retries: u32,
    pub(super) max_time: Option<Duration>,
    pub(super) progress: &'a Arc<Progress>,
    /// The progress is that of one upload.
    pub(super) is_single: bool,
    /// Whether notes are printed.
    pub(super) tells: bool,
}
