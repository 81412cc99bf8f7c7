//! `Retry-After`: when a server may have more to say.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};

/// The longest `Retry-After` that is waited for. A server that asks for more is not asked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// How long to wait before the request is sent again; `None` for a response that is final.
pub(crate) fn pause(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_passing = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    retry_after(headers).filter(|_| is_passing)
}

/// `Retry-After` (RFC 9110 section 10.2.3), if it is not too long.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = httpdate::parse_http_date(value).ok()?;
            until.duration_since(SystemTime::now()).unwrap_or_default()
        }
    };
    (pause <= LONGEST_PAUSE).then_some(pause)
}
