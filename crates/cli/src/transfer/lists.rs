//! What the lists of folders may take that servers send. `get -r` and `put --skip-existing` read many of them at once.
//!
//! A short list is read at any time. Of longer ones, few are held at a time: from when they turn out to be long until what was
//! read of them is not needed any more. So a server cannot fill the memory with lists.

use std::pin::pin;
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _};
use fullbore::Incoming;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest list of a folder: some 100,000 files.
const LONGEST_LIST: usize = 16 << 20;

/// A list that is longer than this is held beside [`LONG_LISTS`] others at most. What is read of a list takes some 15 times
/// its length if its entries are as short as they can be, and 256 are requested at once.
const SHORT_LIST: usize = 16 << 10;
const LONG_LISTS: usize = 4;

/// The bound of all lists of a run.
#[derive(Clone)]
pub(crate) struct Lists(Arc<Semaphore>);

/// The right to hold a long list.
pub(crate) type LongList = Option<OwnedSemaphorePermit>;

impl Lists {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(LONG_LISTS)))
    }

    /// The body of a list; `None` if it is too long. The right is acquired unless there is one.
    pub(crate) async fn gather(
        &self,
        body: Incoming,
        right: &mut LongList,
    ) -> Result<Option<Vec<u8>>, fullbore::Error> {
        let (mut body, mut list) = (pin!(body), Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if list.len() + data.remaining() > LONGEST_LIST {
                return Ok(None);
            }
            if list.len() + data.remaining() > SHORT_LIST && right.is_none() {
                // It is never closed.
                *right = Arc::clone(&self.0).acquire_owned().await.ok();
            }
            list.put(data);
        }
        Ok(Some(list))
    }
}
