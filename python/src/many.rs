//! Many GET requests in one call.

use std::iter::Enumerate;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec;

use fullbore::Client;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::fields::pairs;
use crate::head::Head;
use crate::limits::without_secrets;
use crate::outcome::Outcome;
use crate::queue::Batches;
use crate::reader::read_whole;
use crate::request::Template;
use crate::retry;

/// A URL, and the range of bytes that is wanted: from the first one to the one behind the last.
pub(crate) type Item = (String, Option<(u64, u64)>);

pub(crate) struct Many {
    pub(crate) client: Client,
    pub(crate) template: Arc<Template>,
    /// The most requests at a time.
    pub(crate) at_once: usize,
    /// How often a request is sent again that was answered with `Retry-After`.
    pub(crate) repeats: u32,
    /// Whether the first error ends all.
    pub(crate) stops_at_error: bool,
    /// Whether a short 200 response to a request for a range is that range, as fsspec takes it.
    pub(crate) is_lenient: bool,
}

/// So many responses at a time become objects of Python while others are still to come.
const BATCH: usize = 256;

/// The most tasks that send the requests, each of which may run on a core of its own.
const MOST_TASKS: usize = 4;

/// For fewer requests at a time another task is not worth it.
const LEAST_OF_TASK: usize = 64;

/// A response with its whole body.
struct Whole {
    head: Head,
    body: Vec<u8>,
}

/// The results in the order of their requests: heads, fields and bodies, or failures.
#[derive(Clone)]
pub(crate) struct Results(Arc<Py<PyList>>);

impl Results {
    pub(crate) fn new(py: Python<'_>, items: usize) -> PyResult<Self> {
        let places = PyList::new(py, (0..items).map(|_| py.None()))?;
        Ok(Self(Arc::new(places.unbind())))
    }

    fn set(&self, py: Python<'_>, batch: Vec<(usize, Result<Whole, Failure>)>) -> PyResult<()> {
        let list = self.0.bind(py);
        for (place, result) in batch {
            let value = match result {
                Ok(Whole { mut head, body }) => {
                    // It is not kept twice.
                    let fields = pairs(py, &std::mem::take(&mut head.headers))?;
                    let body = PyBytes::new(py, &body);
                    (head, fields, body).into_bound_py_any(py)?
                }
                Err(failure) => failure.into_value(py)?.into_any(),
            };
            list.set_item(place, value)?;
        }
        Ok(())
    }

    /// What sets these results, and then is the whole list.
    fn with(&self, batch: Vec<(usize, Result<Whole, Failure>)>) -> Outcome {
        let results = self.clone();
        Outcome::made_by(move |py| {
            results.set(py, batch)?;
            Ok(results.0.bind(py).clone().into_any())
        })
    }
}

impl Many {
    pub(crate) async fn run(
        self,
        items: Vec<Item>,
        results: Results,
        batches: Batches,
    ) -> Result<Outcome, Failure> {
        let tasks = (self.at_once / LEAST_OF_TASK).clamp(1, MOST_TASKS);
        let many = Arc::new(self);
        let items = Arc::new(Mutex::new(items.into_iter().enumerate()));
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let at_once = (many.at_once + task) / tasks;
            let (many, items) = (Arc::clone(&many), Arc::clone(&items));
            running.spawn(many.run_part(items, at_once, results.clone(), batches.clone()));
        }
        // If one fails, or this future is dropped, the others end.
        while let Some(ended) = running.join_next().await {
            ended.map_err(|_| Failure::canceled())??;
        }
        Ok(results.with(Vec::new()))
    }

    /// Sends what is next, until nothing is left.
    async fn run_part(
        self: Arc<Self>,
        items: Arc<Mutex<Enumerate<vec::IntoIter<Item>>>>,
        at_once: usize,
        results: Results,
        batches: Batches,
    ) -> Result<(), Failure> {
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        let requests = std::iter::from_fn(next).map(|(place, item)| {
            let one = self.one(item);
            async move { (place, one.await) }
        });
        let mut requests = futures_util::stream::iter(requests).buffer_unordered(at_once);
        let mut batch = Vec::new();
        while let Some((place, result)) = requests.next().await {
            match result {
                Err(failure) if self.stops_at_error => return Err(failure),
                result => batch.push((place, result)),
            }
            if batch.len() == BATCH {
                batches.put(results.with(std::mem::take(&mut batch)));
            }
        }
        batches.put(results.with(batch));
        Ok(())
    }

    async fn one(&self, (url, range): Item) -> Result<Whole, Failure> {
        let ranged = range.map(|(first, end)| {
            let mut template = Template::clone(&self.template);
            let value = HeaderValue::try_from(format!("bytes={first}-{}", end.saturating_sub(1)));
            template.headers.insert(
                header::RANGE,
                value.unwrap_or_else(|_| HeaderValue::from_static("")),
            );
            template
        });
        let template = ranged.as_ref().unwrap_or(&self.template);
        let mut repeats = 0;
        loop {
            let response = template.send(&self.client, &url, None).await?;
            let status = response.status();
            let pause = retry::pause(status, response.headers());
            match pause.filter(|_| repeats < self.repeats) {
                Some(pause) => {
                    // Its end leaves the connection as it is.
                    drop(response);
                    repeats += 1;
                    tokio::time::sleep(pause).await;
                }
                None if !status.is_success() => {
                    return Err(Failure::status(status).of(&without_secrets(&url)));
                }
                None => {
                    let (head, body) = Head::split(response);
                    let named = |failure: Failure| failure.of(&without_secrets(&url));
                    let body = read_whole(body, template.limits.read).await.map_err(named)?;
                    let body = match range {
                        Some(range) => part(status, &head.headers, body, range, self.is_lenient)
                            .map_err(|why| Failure::new("range", why).of(&without_secrets(&url)))?,
                        None => body,
                    };
                    return Ok(Whole { head, body });
                }
            }
        }
    }
}

/// The part of a body that was asked for: what a 206 response has, or that of the whole, from a server without ranges.
fn part(
    status: StatusCode,
    headers: &HeaderMap,
    mut body: Vec<u8>,
    (first, end): (u64, u64),
    is_lenient: bool,
) -> Result<Vec<u8>, String> {
    let wanted = end - first;
    let length = body.len() as u64;
    if status != StatusCode::PARTIAL_CONTENT {
        if is_lenient && length <= wanted {
            return Ok(body);
        }
        let begin = usize::try_from(first).unwrap_or(usize::MAX).min(body.len());
        let last = usize::try_from(end).unwrap_or(usize::MAX).min(body.len());
        body.truncate(last);
        body.drain(..begin);
        return Ok(body);
    }
    let range = headers
        .get(header::CONTENT_RANGE)
        .and_then(|value| value.to_str().ok());
    let range = range.ok_or("the server answered with 206 and without a range")?;
    let parsed = range.strip_prefix("bytes ").and_then(|range| {
        let (first, rest) = range.split_once('-')?;
        let (last, total) = rest.split_once('/')?;
        Some((
            first.parse::<u64>().ok()?,
            last.parse::<u64>().ok()?,
            total.parse::<u64>().ok(),
        ))
    });
    let wrong = || format!("bytes {first} to {end} were asked for, and the server answered with {range:?}");
    let (begun, last, total) = parsed.ok_or_else(wrong)?;
    // Only the end of the whole makes a range shorter.
    let is_short = last
        .checked_add(1)
        .is_none_or(|behind| behind > end || (behind < end && total.is_some_and(|total| behind < total)));
    if begun != first
        || is_short
        || length > wanted
        || last.checked_sub(begun).map(|rest| rest + 1) != Some(length)
    {
        return Err(wrong());
    }
    Ok(body)
}
