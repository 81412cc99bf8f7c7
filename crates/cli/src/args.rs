//! The command line: every command, option and example.

mod connection;
mod credentials;
mod get;
mod hash_password;
mod link;
mod listen_address;
mod network;
mod output;
mod path;
mod proxy;
mod put;
mod serve;
mod server;
mod short_help;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

pub(crate) use connection::{ConnectionArgs, HeaderLine};
pub(crate) use credentials::Login;
pub(crate) use get::GetArgs;
pub(crate) use hash_password::HashPasswordArgs;
pub(crate) use link::LinkArgs;
pub(crate) use listen_address::ListenAddress;
pub(crate) use network::NetworkArgs;
pub(crate) use proxy::{OriginArgs, ProxyArgs};
pub(crate) use put::PutArgs;
pub(crate) use serve::{FileArgs, Origin, ServeArgs};
pub(crate) use server::{ResponseField, ServerArgs};

use crate::exit::{self, Failure};
use crate::run;

/// Fast HTTP/2 and HTTP/1.1 downloads, uploads and file server
#[derive(Parser, Debug)]
#[command(
    name = "fullbore",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = ROOT_EXAMPLES, after_long_help = after_help(ROOT_EXAMPLES))]
pub(crate) struct Args {
    /// Log connections, resets, stalls and limits to standard error; -vv also requests (or set RUST_LOG=fullbore=debug)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Log")]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Download URLs in parallel, or a folder. Saves or prints their bodies; it is no client for APIs
    #[command(after_help = get::EXAMPLES, after_long_help = after_help(&with_key_log(get::EXAMPLES)))]
    Get(GetArgs),
    /// Upload files and folders, or one file and print the response
    #[command(after_help = put::EXAMPLES, after_long_help = after_help(&with_key_log(put::EXAMPLES)))]
    Put(PutArgs),
    /// Serve a folder, or one file, over HTTP/2 and HTTP/1.1
    #[command(after_help = serve::EXAMPLES, after_long_help = with_key_log(&with_variables(serve::EXAMPLES)))]
    Serve(ServeArgs),
    /// Pass requests on to an application, as a reverse proxy
    #[command(after_help = proxy::EXAMPLES, after_long_help = with_key_log(&with_variables(proxy::EXAMPLES)))]
    Proxy(ProxyArgs),
    /// Hash a password for `serve --auth`
    #[command(after_help = hash_password::EXAMPLES)]
    HashPassword(HashPasswordArgs),
    /// Emulate a long path in front of a server: delay, rate and buffer
    #[command(after_help = link::EXAMPLES)]
    Link(LinkArgs),
    /// Transfer data between a client and a server in this process, check every byte and print the speeds
    #[command(after_help = DEMO_EXAMPLES)]
    Demo,
    /// Print the completions of a shell on standard output
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Write the man pages to a folder, or print that of the program
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The folder, which is created if it does not exist [default: print fullbore.1]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}

impl Args {
    /// Parses the command line and, for `serve` and `proxy`, the environment. Exits when it is wrong, or asks for help.
    pub(crate) fn of_process() -> Self {
        let matches = Args::with_environment().try_get_matches();
        matches
            .and_then(|matches| Args::from_arg_matches(&matches))
            .unwrap_or_else(|error| exit_with(&error))
    }

    fn with_environment() -> clap::Command {
        short_help::with_short_help(Args::command(), std::env::args_os().any(|arg| arg == "-h"))
            .mut_subcommand("serve", |serve| serve.mut_args(from_environment))
            .mut_subcommand("proxy", |proxy| proxy.mut_args(from_environment))
    }
}

/// Prints the help, the version or what is wrong, and exits.
fn exit_with(error: &clap::Error) -> ! {
    let printed = error.print().and_then(|()| io::stdout().flush());
    let code = match printed {
        Err(unprinted) if !error.use_stderr() => {
            let failure = Failure::from_io("write to", Path::new("standard output"), &unprinted);
            // A reader of help such as `head` stops reading when it has enough.
            if unprinted.kind() != io::ErrorKind::BrokenPipe {
                run::complain(&failure);
            }
            failure.exit.code().into()
        }
        _ => error.exit_code(),
    };
    std::process::exit(code)
}

/// Lets a variable set an option: FULLBORE_DRAIN_TIMEOUT for `--drain-timeout`. The values of one that can be repeated are
/// in lines of their own. A switch that is false is as good as absent, so it conflicts with nothing.
fn from_environment(arg: Arg) -> Arg {
    let name = arg.get_long().unwrap_or(arg.get_id().as_str());
    let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    // clap keeps the names of variables for as long as the process runs.
    let name: &str = format!("FULLBORE_{}", name.to_ascii_uppercase()).leak();
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let is_absent = std::env::var(name).is_ok_and(|value| match is_switch {
        true => matches!(switch(name, &value), Ok(false)),
        false => is_of_kubernetes(name, &value),
    });
    if is_absent {
        return arg;
    }
    let arg = arg.env(name).hide_env(true);
    match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(move |text: &str| switch(name, text)),
        ArgAction::Append => arg.value_delimiter('\n'),
        _ => arg,
    }
}

/// Kubernetes sets FULLBORE_PORT to an address such as tcp://10.0.0.1:80 in every container beside a Service named `fullbore`.
fn is_of_kubernetes(variable: &str, value: &str) -> bool {
    let schemes = ["tcp://", "udp://", "sctp://"];
    variable == "FULLBORE_PORT" && schemes.iter().any(|scheme| value.starts_with(scheme))
}

/// The value of a variable that stands for an option without a value.
fn switch(variable: &str, text: &str) -> Result<bool, Failure> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
        _ => Err(Failure::usage(format!(
            "the variable {variable} is neither true nor false; set it to true, or unset it"
        ))),
    }
}

const ROOT_EXAMPLES: &str = "\
Examples:
  fullbore demo                                        a test run of a few seconds
  fullbore get -O https://example.org/big.iso          download a file under its own name
  fullbore serve                                       serve this folder on http://127.0.0.1:8080
  fullbore serve --lan                                 the same for phones and other devices of this network
  fullbore proxy http://127.0.0.1:3000 --self-signed   put HTTP/2 in front of an application";

const DEMO_EXAMPLES: &str = "\
Example:
  fullbore demo";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  fullbore completions bash > ~/.local/share/bash-completion/completions/fullbore
  fullbore completions zsh > ~/.zfunc/_fullbore        with ~/.zfunc in fpath
  fullbore completions fish > ~/.config/fish/completions/fullbore.fish
  fullbore completions powershell >> $PROFILE";

const MAN_EXAMPLES: &str = "\
Examples:
  fullbore man ~/.local/share/man/man1                 then: man fullbore-get
  fullbore man | man -l -                              read the first page at once";

/// Adds a sentence on SSLKEYLOGFILE, for the commands that connect over TLS.
fn with_key_log(examples: &str) -> String {
    format!(
        "{examples}\n\nThe variable SSLKEYLOGFILE names a file that gets the secrets of TLS connections: whoever can read it \
         can decrypt them."
    )
}

/// Adds what the variables of the environment do, for servers.
fn with_variables(examples: &str) -> String {
    format!(
        "{examples}\n\nThe environment can set every option: FULLBORE_LISTEN stands for --listen, with several values separated \
         by newlines, and FULLBORE_SELF_SIGNED=true for --self-signed. The command line takes precedence."
    )
}

fn after_help(examples: &str) -> String {
    format!("{examples}\n\n{}", exit::table())
}
