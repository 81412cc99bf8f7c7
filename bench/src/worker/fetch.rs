//! One download with reqwest's defaults.

use clap::Args;

use super::{Failure, print_line};

#[derive(Args, Clone)]
pub(crate) struct Fetch {
    url: String,
}

impl Fetch {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let client = reqwest::Client::builder().http2_prior_knowledge().build()?;
        let mut response = client.get(&self.url).send().await?;
        let mut bytes = 0;
        while let Some(chunk) = response.chunk().await? {
            bytes += chunk.len();
        }
        print_line(&bytes.to_string())
    }
}
