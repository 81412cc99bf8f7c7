//! One download with reqwest's defaults, as a program of its own. `part` runs it.

use clap::Args;

use super::{Failure, say};

#[derive(Args, Clone)]
pub(crate) struct Once {
    url: String,
}

impl Once {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let client = reqwest::Client::builder().http2_prior_knowledge().build()?;
        let mut response = client.get(&self.url).send().await?;
        let mut bytes = 0;
        while let Some(chunk) = response.chunk().await? {
            bytes += chunk.len();
        }
        say(&bytes.to_string())
    }
}
