//! What `-h` shows: the options of each day, one line for each, on one screen. `--help` shows everything.

use clap::{Arg, Command};

/// The option and what `-h` says of it, for each command.
pub(super) const DAILY: [(&str, &[(&str, &str)]); 4] =
    [("get", &GET), ("put", &PUT), ("serve", &SERVE), ("proxy", &PROXY)];

const GET: [(&str, &str); 22] = [
    ("urls", "The URLs to download"),
    ("output", "Save the body to this file"),
    ("remote_name", "Save each body under the last name of its URL"),
    ("dir", "Like -O, in this folder"),
    ("recursive", "Download a folder with all below it"),
    ("newer", "With -r, only what is newer or has another size"),
    (
        "list",
        "Read URLs from this file, one on each line (not curl's -i)",
    ),
    ("continued", "Continue a file that another program has begun"),
    ("head", "Print the fields of the responses, and no body"),
    ("checksum", "Check what was received, as in sha256:9f86d081…"),
    ("retry", "Repeat temporary failures N times"),
    ("force", "Replace existing files"),
    ("skip_existing", "Skip existing files"),
    ("json", "Print a report as JSON (curl's --json sends some)"),
    ("quiet", "Print errors only"),
    ("headers", "Add a header field; can be repeated"),
    ("user", "Send this name and password"),
    ("cacert", "Trust the certificates in this file"),
    ("insecure", "Accept any certificate"),
    ("proxy", "Reach servers through this proxy"),
    ("limit_rate", "Limit the rate, as in 2MB"),
    ("max_time", "Limit the time of each attempt, as in 90s"),
];

const PUT: [(&str, &str); 15] = [
    (
        "operands",
        "The files and folders, `-` for standard input, and last the URL",
    ),
    (
        "skip_existing",
        "Send no file that the server has (size and time)",
    ),
    ("hidden", "Send names that begin with a dot, too"),
    ("method", "The method, such as POST [default: PUT]"),
    ("output", "Save the response to this file"),
    ("retry", "Repeat temporary failures N times"),
    ("json", "Print a report as JSON (curl's --json sends some)"),
    ("quiet", "Print errors only"),
    ("headers", "Add a header field; can be repeated"),
    ("user", "Send this name and password"),
    ("cacert", "Trust the certificates in this file"),
    ("insecure", "Accept any certificate"),
    ("proxy", "Reach the server through this proxy"),
    ("limit_rate", "Limit the rate, as in 2MB"),
    ("max_time", "Limit the time of each attempt, as in 90s"),
];

const SERVE: [(&str, &str); 19] = [
    ("root", "The folder or the file to serve [default: this folder]"),
    ("port", "Listen on this port of this machine [default: 8080]"),
    ("lan", "Let other devices of the network in, and print where"),
    (
        "listen",
        "Listen on this address, such as [::]:8080; can be repeated",
    ),
    ("cert", "Use TLS with this certificate"),
    ("key", "The private key of the certificate"),
    ("self_signed", "Use TLS with a certificate of its own"),
    ("redirect_http", "Also listen here, and redirect to https"),
    ("auth", "Ask for a password; see `fullbore hash-password`"),
    ("auth_write", "The same for uploads alone"),
    ("uploads", "Store uploads in this folder"),
    ("overwrite", "Let uploads replace files"),
    ("no_listing", "Show no lists of files"),
    ("hidden", "Also serve names that begin with a dot"),
    ("spa", "Answer paths without a file with index.html"),
    ("compress", "Compress texts while they are sent"),
    ("cors", "Let scripts of this origin read the responses, or of all"),
    ("log", "Print an access log"),
    ("metrics", "Serve metrics for Prometheus on this address"),
];

const PROXY: [(&str, &str); 12] = [
    ("origin", "The application, such as http://127.0.0.1:3000"),
    ("port", "Listen on this port of this machine [default: 8080]"),
    ("lan", "Let other devices of the network in, and print where"),
    (
        "listen",
        "Listen on this address, such as [::]:443; can be repeated",
    ),
    ("cert", "Use TLS with this certificate"),
    ("key", "The private key of the certificate"),
    ("self_signed", "Use TLS with a certificate of its own"),
    ("redirect_http", "Also listen here, and redirect to https"),
    ("to", "Also pass requests on to this instance; can be repeated"),
    ("auth", "Ask for a password; see `fullbore hash-password`"),
    ("log", "Print an access log"),
    ("metrics", "Serve metrics for Prometheus on this address"),
];

/// Gives the commands what `-h` shows of them. It has no groups where `is_short`, which saves their lines.
pub(super) fn with_short_help(command: Command, is_short: bool) -> Command {
    let grouped = |arg: Arg| match is_short {
        true => arg.help_heading(None::<&str>),
        false => arg,
    };
    let command = command.mut_arg("verbose", |arg| {
        grouped(with(arg, "Log to standard error; -vv logs more", false))
    });
    DAILY.iter().fold(command, |command, (name, daily)| {
        command.mut_subcommand(name, |command| {
            command.mut_args(
                |arg| match daily.iter().find(|(id, _)| *id == arg.get_id().as_str()) {
                    Some((_, short)) => grouped(with(arg, short, is_short)),
                    None => arg.hide_short_help(true),
                },
            )
        })
    })
}

/// Lets `-h` say this of an option, and `--help` what it says otherwise.
fn with(arg: Arg, short: &'static str, hides_default: bool) -> Arg {
    let Some(long) = arg.get_long_help().or(arg.get_help()).map(ToString::to_string) else {
        return arg;
    };
    let takes = arg.get_action().takes_values();
    arg.help(short)
        .long_help(long)
        .hide_default_value(hides_default && takes)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    #[test]
    fn short_help_fits_a_screen_and_long_help_has_every_option() {
        for (name, daily) in DAILY {
            let help = |is_short: bool| {
                let mut command = with_short_help(Args::command(), is_short).term_width(100);
                command.build();
                let command = command.find_subcommand_mut(name).expect("it exists");
                match is_short {
                    true => command.render_help().to_string(),
                    false => command.render_long_help().to_string(),
                }
            };
            let (short, long) = (help(true), help(false));
            let lines = short.lines().count();
            assert!((24..=40).contains(&lines), "{name} has {lines} lines:\n{short}");
            for (id, said) in daily {
                assert!(short.contains(said), "{name}: {id} has another line:\n{short}");
            }
            let mut command = Args::command();
            let command = command.find_subcommand_mut(name).expect("it exists");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let option = arg.get_long().unwrap_or_default();
                assert!(long.contains(option), "{name} --{option}");
            }
        }
    }
}
