//! The `date` field (RFC 9110 section 6.6.1), made once a second for each thread.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use http::HeaderValue;

thread_local! {
    static CACHED: RefCell<(u64, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static(""))) };
}

/// The current `date`, and how long it is valid.
pub(super) fn now() -> (HeaderValue, Duration) {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    CACHED.with_borrow_mut(|(second, value)| {
        if *second != since_epoch.as_secs() {
            let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since_epoch);
            if let Ok(made) = HeaderValue::from_str(&text) {
                (*second, *value) = (since_epoch.as_secs(), made);
            }
        }
        let over = Duration::from_nanos(since_epoch.subsec_nanos().into());
        (value.clone(), Duration::from_secs(1) - over)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_date_is_of_the_form_that_http_prefers() {
        let (value, stays) = super::now();
        assert!(!stays.is_zero() && stays <= std::time::Duration::from_secs(1));
        let text = value.to_str().unwrap();
        assert_eq!(text.len(), "Sun, 06 Nov 1994 08:49:37 GMT".len());
        assert!(text.ends_with(" GMT") && httpdate::parse_http_date(text).is_ok());
    }
}
