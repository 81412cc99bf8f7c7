//! The options of `fullbore hash-password`.

use clap::Args as Options;

use crate::exit::Failure;

pub(super) const EXAMPLES: &str = "\
Examples:
  fullbore hash-password ann                           asks for the password
  fullbore serve . --self-signed --auth \"$(fullbore hash-password ann)\"";

/// `fullbore hash-password`.
#[derive(Options, Debug)]
pub(crate) struct HashPasswordArgs {
    /// The name of the user
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
}

fn name(text: &str) -> Result<String, Failure> {
    match text.is_empty() || text.contains(|letter: char| letter == ':' || letter.is_control()) {
        true => Err(Failure::usage(
            "expected a name without colons and control characters, such as ann",
        )),
        false => Ok(text.to_owned()),
    }
}
