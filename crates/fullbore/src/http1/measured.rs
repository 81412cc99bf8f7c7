//! A body as hyper is given it. hyper sends what a head announces and asks for nothing behind it, so that a body that is longer
//! would pass for complete. The last octet is held back until the body has ended.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use crate::content_length::Length;
use crate::error::Error;
use crate::sender::MANY_EMPTY;

/// What comes next of a body.
pub(crate) enum Next {
    /// A chunk, and whether nothing follows.
    Data(Bytes, bool),
    Trailers(HeaderMap),
    End,
}

/// Counts a body, and holds back its last octet.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    length: Length,
    /// The last octet of the announced length, while more may come.
    last: Option<u8>,
}

impl Measured {
    pub(crate) fn new(length: Length) -> Self {
        Measured { length, last: None }
    }

    /// Whether the announced length was passed on, and the body has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.length.is_reached() && self.last.is_none()
    }

    /// Whether hyper has to ask again although the body is at its end.
    pub(crate) fn holds(&self) -> bool {
        self.last.is_some()
    }

    /// The next frame for hyper, of what `next` gives.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Context<'_>) -> Poll<Result<Next, Error>>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        // The chunk with which the length is reached, until it is known whether the body ends here.
        let mut whole: Option<Bytes> = None;
        let mut empty = 0;
        loop {
            let polled = match empty {
                MANY_EMPTY => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                _ => next(cx),
            };
            let Poll::Ready(polled) = polled else {
                return match whole {
                    Some(chunk) => self.hold(chunk),
                    None => Poll::Pending,
                };
            };
            let counted = polled.and_then(|next| {
                let (bytes, ends) = match &next {
                    Next::Data(bytes, ends) => (bytes.len(), *ends),
                    Next::Trailers(_) | Next::End => (0, true),
                };
                self.length.count(bytes, ends).map(|()| (next, ends))
            });
            let (next, ends) = match counted {
                Ok(counted) => counted,
                Err(error) => {
                    self.last = None;
                    return Poll::Ready(Some(Err(error)));
                }
            };
            let held = match ends {
                true => whole.take().or_else(|| self.take_last()),
                false => None,
            };
            return Poll::Ready(match (held, next) {
                // Behind an announced length hyper sends no trailers.
                (Some(held), _) => Some(Ok(Frame::data(held))),
                (None, Next::End) => None,
                (None, Next::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
                (None, Next::Data(bytes, false)) if bytes.is_empty() => {
                    empty += 1;
                    continue;
                }
                (None, Next::Data(bytes, false)) if self.length.is_reached() => {
                    whole = Some(bytes);
                    continue;
                }
                (None, Next::Data(bytes, _)) => Some(Ok(Frame::data(bytes))),
            });
        }
    }

    fn take_last(&mut self) -> Option<Bytes> {
        self.last.take().map(|octet| Bytes::copy_from_slice(&[octet]))
    }

    /// Holds back the last octet of a chunk.
    fn hold(&mut self, mut chunk: Bytes) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        // Copied: the chunk may be a piece of a file, which the transport gives back.
        self.last = chunk.last().copied();
        chunk.truncate(chunk.len().saturating_sub(1));
        match chunk.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(Some(Ok(Frame::data(chunk)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http::header::{CONTENT_LENGTH, HeaderValue};

    use super::*;
    use crate::ErrorKind;

    fn length(bytes: u64) -> Length {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        Length::of(&headers).expect("a number")
    }

    fn data(text: &'static str, ends: bool) -> Poll<Result<Next, Error>> {
        Poll::Ready(Ok(Next::Data(Bytes::from_static(text.as_bytes()), ends)))
    }

    /// What hyper gets at each of its questions: a chunk, nothing yet, or an end.
    fn given(length: Length, script: Vec<Poll<Result<Next, Error>>>) -> Vec<Result<String, ErrorKind>> {
        let mut script = VecDeque::from(script);
        let mut measured = Measured::new(length);
        let mut all = Vec::new();
        while !script.is_empty() {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let polled = measured.poll(&mut cx, |_| script.pop_front().unwrap_or(Poll::Pending));
            all.push(match polled {
                Poll::Pending => Ok("...".to_owned()),
                Poll::Ready(None) => Ok("end".to_owned()),
                Poll::Ready(Some(Err(error))) => Err(error.kind()),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => Ok(String::from_utf8(bytes.to_vec()).expect("text")),
                    Err(_) => Ok("trailers".to_owned()),
                },
            });
        }
        all
    }

    fn said(text: &str) -> Result<String, ErrorKind> {
        Ok(text.to_owned())
    }

    fn end() -> Poll<Result<Next, Error>> {
        Poll::Ready(Ok(Next::End))
    }

    fn trailers() -> Poll<Result<Next, Error>> {
        Poll::Ready(Ok(Next::Trailers(HeaderMap::new())))
    }

    #[test]
    fn a_body_that_says_where_it_ends_is_passed_on_as_it_is() {
        let chunks = || vec![data("ab", false), data("", false), data("cde", true)];
        for length in [length(5), Length::UNKNOWN] {
            assert_eq!(given(length, chunks()), [said("ab"), said("cde")]);
        }
        let ended = || vec![data("abcde", false), end()];
        assert_eq!(given(length(5), ended()), [said("abcde")]);
        assert_eq!(given(Length::UNKNOWN, ended()), [said("abcde"), said("end")]);
        let with_trailers = || vec![data("abcde", false), trailers()];
        assert_eq!(given(length(5), with_trailers()), [said("abcde")]);
        assert_eq!(
            given(Length::UNKNOWN, with_trailers()),
            [said("abcde"), said("trailers")]
        );
    }

    #[test]
    fn the_last_octet_waits_for_the_end() {
        for last in [end(), trailers(), data("", true)] {
            let script = vec![data("abcde", false), Poll::Pending, Poll::Pending, last];
            assert_eq!(given(length(5), script), [said("abcd"), said("..."), said("e")]);
        }
        let script = vec![
            data("abcd", false),
            data("e", false),
            Poll::Pending,
            Poll::Pending,
            end(),
        ];
        assert_eq!(
            given(length(5), script),
            [said("abcd"), said("..."), said("..."), said("e")]
        );
    }

    #[test]
    fn a_body_of_empty_chunks_without_end_lets_other_tasks_run() {
        use fullbore_testing::wakes::Wakes;

        let wakes = std::sync::Arc::new(Wakes::default());
        let waker = std::task::Waker::from(std::sync::Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        for length in [Length::UNKNOWN, length(5)] {
            let before = wakes.count();
            let mut measured = Measured::new(length);
            assert!(measured.poll(&mut cx, |_| data("", false)).is_pending());
            assert_eq!(wakes.count(), before + 1);
        }
    }

    #[test]
    fn what_is_longer_or_shorter_is_an_error_before_the_length_is_reached() {
        let wrong = || Err(ErrorKind::BodyLength);
        let at_once = vec![data("abcde", false), data("f", false)];
        assert_eq!(given(length(5), at_once), [wrong()]);
        let later = vec![data("abcde", false), Poll::Pending, data("f", false)];
        assert_eq!(given(length(5), later), [said("abcd"), wrong()]);
        assert_eq!(given(length(5), vec![data("abcdef", true)]), [wrong()]);
        for last in [end(), trailers(), data("", true)] {
            let short = vec![data("abcd", false), last];
            assert_eq!(given(length(5), short), [said("abcd"), wrong()]);
        }
    }
}
