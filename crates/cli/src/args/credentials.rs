//! The options of `get` and `put` that say who asks: names, passwords, certificates, and fields of their own.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args as Options;
use http::HeaderValue;

use crate::exit::Failure;

/// The options of `get` and `put` that say who asks.
#[derive(Options, Clone, Debug)]
#[command(next_help_heading = "Credentials")]
pub(crate) struct CredentialArgs {
    /// Send this name and password (Basic), to the origins that get the fields of -H. Other users of this machine can see the
    /// command line; --netrc-file keeps a password out of it
    #[arg(short, long, value_name = "USER:PASSWORD")]
    pub(crate) user: Option<Login>,

    /// Send the names and passwords of ~/.netrc to the hosts that it names
    #[arg(short, long)]
    pub(crate) netrc: bool,

    /// Like -n, with this file
    #[arg(long, value_name = "FILE", conflicts_with = "netrc")]
    pub(crate) netrc_file: Option<PathBuf>,

    /// Present this certificate (PEM, with the chain after it) to servers that ask for one
    #[arg(short = 'E', long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of --cert (PEM, not encrypted) [default: the file of --cert]
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// Send this as user-agent, to every origin [default: fullbore/VERSION]
    #[arg(short = 'A', long, value_name = "TEXT", value_parser = field_value)]
    pub(crate) user_agent: Option<HeaderValue>,

    /// Send this as referer
    #[arg(short = 'e', long, value_name = "URL", value_parser = field_value)]
    pub(crate) referer: Option<HeaderValue>,

    /// Send these cookies
    #[arg(short = 'b', long, value_name = "NAME=VALUE; …", value_parser = cookies)]
    pub(crate) cookie: Option<HeaderValue>,
}

/// A name and password.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) name: String,
    /// None in a URL without one.
    pub(crate) password: Option<String>,
}

/// Without the password.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl FromStr for Login {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let (name, password) = text.split_once(':').ok_or_else(|| {
            Failure::usage("expected USER:PASSWORD; -n and --netrc-file read the password from a file")
        })?;
        let login = Self {
            name: name.to_owned(),
            password: Some(password.to_owned()),
        };
        Ok(login)
    }
}

fn field_value(text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text)
        .map_err(|_| Failure::usage("a field value must not contain control characters"))
}

fn cookies(text: &str) -> Result<HeaderValue, Failure> {
    match text.contains('=') {
        true => field_value(text),
        // curl reads a file then.
        false => Err(Failure::usage(
            "expected NAME=VALUE; files of cookies are not read",
        )),
    }
}
