//! Tests of the command line.

use std::time::Duration;

use clap::{CommandFactory, Parser};
use fullbore::Config;

use super::{Args, Command, HeaderLine};

#[test]
fn the_command_line_is_well_formed() {
    Args::command().debug_assert();
}

#[test]
fn every_option_of_serve_and_proxy_has_a_variable_of_its_own() {
    let mut command = Args::with_environment();
    command.build();
    let server = |name| command.find_subcommand(name).expect("it exists");
    let own = [("serve", "FULLBORE_ROOT"), ("proxy", "FULLBORE_ORIGIN_TIMEOUT")];
    for (name, of_its_own) in own {
        options_have_variables(server(name), of_its_own);
    }
    // Other commands do not change with the environment.
    let get = command.find_subcommand("get").expect("it exists");
    assert!(get.get_arguments().all(|arg| arg.get_env().is_none()));
}

fn options_have_variables(command: &clap::Command, of_its_own: &str) {
    let mut names = Vec::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        match arg.get_env().and_then(|name| name.to_str()) {
            Some(name) => names.push(name.to_owned()),
            None => assert!(["help", "version", "verbose"].contains(&id), "{id} has none"),
        }
    }
    for name in [
        of_its_own,
        "FULLBORE_LISTEN",
        "FULLBORE_HTTP1_1",
        "FULLBORE_SELF_SIGNED_NAME",
    ] {
        assert!(
            names.iter().any(|found| found == name),
            "{name} is not in {names:?}"
        );
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn every_command_shows_an_example() {
    for command in Args::command().get_subcommands_mut() {
        let help = command.render_help().to_string();
        assert!(help.contains("Example"), "{} has none", command.get_name());
    }
}

#[test]
fn header_fields_of_a_connection_are_refused() {
    for line in [
        "Connection: close",
        "transfer-encoding: chunked",
        "te: gzip",
        "no colon",
        "a b: c",
    ] {
        assert!(line.parse::<HeaderLine>().is_err(), "{line} was accepted");
    }
    assert!("TE: trailers".parse::<HeaderLine>().is_ok());
    assert!("authorization: Basic Zm9vOmJhcg==".parse::<HeaderLine>().is_ok());
}

#[test]
fn the_time_to_drain_has_a_unit_or_is_in_seconds() {
    let of =
        |args: &[&str]| match Args::try_parse_from([&["fullbore", "serve", "--plaintext"], args].concat()) {
            Ok(Args {
                command: Command::Serve(serve),
                ..
            }) => Some(serve.server.drain_timeout),
            _ => None,
        };
    assert_eq!(of(&[]), Some(Duration::from_secs(30)));
    assert_eq!(of(&["--drain-timeout", "5"]), Some(Duration::from_secs(5)));
    assert_eq!(of(&["--drain-timeout", "5ms"]), Some(Duration::from_millis(5)));
    assert_eq!(of(&["--drain-timeout", "0"]), Some(Duration::ZERO));
    for wrong in ["", "s", "-1", "5 parsecs"] {
        assert_eq!(of(&["--drain-timeout", wrong]), None, "{wrong}");
    }
}

#[test]
fn what_may_wait_unsent_is_a_size_that_the_kernel_takes() {
    let of = |args: &[&str]| match Args::try_parse_from([&["fullbore"], args].concat()).ok()?.command {
        Command::Serve(serve) => serve.server.path.tcp_unsent,
        Command::Get(get) => get.connection.path.tcp_unsent,
        Command::Put(put) => put.connection.path.tcp_unsent,
        _ => None,
    };
    let serve = ["serve", "--plaintext"];
    assert_eq!(of(&serve), None);
    assert_eq!(
        of(&[&serve[..], &["--tcp-unsent", "128KiB"]].concat()),
        Some(131_072)
    );
    assert_eq!(of(&["get", "--tcp-unsent", "1MiB", "http://a/"]), Some(1 << 20));
    assert_eq!(
        of(&["put", "--tcp-unsent", "65535", "f", "http://a/"]),
        Some(65_535)
    );
    assert_eq!(of(&["get", "--tcp-unsent", "0", "http://a/"]), Some(0));
    for wrong in ["", "-1", "2GiB", "much"] {
        let args = [&["fullbore"], &serve[..], &["--tcp-unsent", wrong]].concat();
        assert!(Args::try_parse_from(args).is_err(), "{wrong}");
    }
}

#[test]
fn a_window_that_is_set_is_fixed_and_others_keep_their_defaults() {
    let configured = |args: &[&str]| {
        let parsed = Args::try_parse_from([&["fullbore", "get", "http://a/"], args].concat());
        let mut config = Config::default();
        if let Ok(Args {
            command: Command::Get(get),
            ..
        }) = parsed
        {
            get.connection.path.configure(&mut config);
        }
        let windows = (config.stream_window().bytes(), config.connection_window().bytes());
        (windows, config.adaptive())
    };
    let (windows, adaptive) = configured(&[]);
    assert!(adaptive);
    assert_eq!(
        configured(&["--stream-window", "1MiB"]),
        ((1 << 20, windows.1), false)
    );
    assert_eq!(
        configured(&["--connection-window", "1MiB"]),
        ((windows.0, 1 << 20), false)
    );
}

#[test]
fn a_dead_transfer_ends_after_a_minute_unless_told_otherwise() {
    let of = |args: &[&str]| match Args::try_parse_from([&["fullbore", "get", "http://a/"], args].concat())
        .ok()?
        .command
    {
        Command::Get(get) => Some((get.connection.speed_time, get.connection.max_time)),
        _ => None,
    };
    assert_eq!(of(&[]), Some((Duration::from_secs(60), None)));
    assert_eq!(
        of(&["--speed-time", "0", "-m", "9"]),
        Some((Duration::ZERO, Some(Duration::from_secs(9))))
    );
    assert_eq!(
        of(&["--speed-time", "2m", "-m", "1.5s"]),
        Some((Duration::from_secs(120), Some(Duration::from_millis(1_500))))
    );
    assert_eq!(of(&["--max-time", "0"]), None);
}

#[test]
fn serve_takes_one_choice_about_tls_and_what_needs_tls_asks_for_it() {
    assert!(Args::try_parse_from(["fullbore", "serve"]).is_ok());
    for needs_tls in [["--client-ca", "ca.pem"], ["--redirect-http", "[::]:80"]] {
        let alone = [&["fullbore", "serve"][..], &needs_tls].concat();
        assert!(Args::try_parse_from(&alone).is_err());
        assert!(Args::try_parse_from([&alone[..], &["--plaintext"]].concat()).is_err());
        assert!(Args::try_parse_from([&alone[..], &["--self-signed"]].concat()).is_ok());
    }
    assert!(Args::try_parse_from(["fullbore", "serve", "--cert", "c.pem"]).is_err());
    assert!(Args::try_parse_from(["fullbore", "serve", "--plaintext", "--self-signed"]).is_err());
    assert!(Args::try_parse_from(["fullbore", "serve", "--plaintext"]).is_ok());
    assert!(Args::try_parse_from(["fullbore", "serve", "--cert", "c.pem", "--key", "k.pem"]).is_ok());
}

#[test]
fn permissions_of_a_socket_are_up_to_0777() {
    let of = |text: &str| match Args::try_parse_from([
        "fullbore",
        "serve",
        "--plaintext",
        "--socket-mode",
        text,
    ]) {
        Ok(Args {
            command: Command::Serve(serve),
            ..
        }) => Some(serve.server.socket_mode.0),
        _ => None,
    };
    assert_eq!(
        (of("660"), of("777"), of("0777")),
        (Some(0o660), Some(0o777), Some(0o777))
    );
    assert_eq!((of("1000"), of("8"), of("rw")), (None, None, None));
}
