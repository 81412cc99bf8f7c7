//! What connections waited for, said as they end: a sentence each, or a line of JSON.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

use fullbore_proto::{Cause, Direction, Report, Role, Stall, Verdict};

/// The variable: `1` for a sentence on standard error, `json` for a line of JSON there, or a file that sentences are appended
/// to.
const VARIABLE: &str = "FULLBORE_REPORT";

/// Connections that carried fewer bytes and were busy for less time are not reported.
const LEAST_BYTES: u64 = 1_000_000;
const LEAST_TIME: Duration = Duration::from_secs(1);

static TARGET: OnceLock<Option<Target>> = OnceLock::new();

/// Where reports go.
#[derive(Debug)]
enum Target {
    Sentences,
    Json,
    File(File),
}

/// Whether connections are to be reported.
pub(crate) fn is_wanted() -> bool {
    target().is_some()
}

/// Reports a connection that ends.
pub(crate) fn say(role: Role, report: &Report) {
    let Some(target) = target() else {
        return;
    };
    let Some(account) = Account::of(role, report) else {
        return;
    };
    let line = match target {
        Target::Json => account.json(),
        Target::Sentences | Target::File(_) => account.sentence(),
    };
    // One write, so that lines of several connections do not mix. There is nobody to tell that it failed.
    let _ = match target {
        Target::File(file) => (&*file).write_all(line.as_bytes()),
        Target::Sentences | Target::Json => std::io::stderr().write_all(line.as_bytes()),
    };
}

fn target() -> Option<&'static Target> {
    let target = || {
        let value = std::env::var_os(VARIABLE)?;
        match value.to_str() {
            Some("" | "0") => None,
            Some("1") => Some(Target::Sentences),
            Some("json") => Some(Target::Json),
            _ => match OpenOptions::new().create(true).append(true).open(&value) {
                Ok(file) => Some(Target::File(file)),
                Err(error) => {
                    tracing::warn!(%error, "{VARIABLE} names a file that cannot be opened");
                    None
                }
            },
        }
    };
    TARGET.get_or_init(target).as_ref()
}

/// What is said of a connection.
struct Account<'a> {
    report: &'a Report,
    verdict: Verdict,
    bytes: u64,
    busy: Duration,
}

impl<'a> Account<'a> {
    /// By the direction that carried more. None if there is nothing to say.
    fn of(role: Role, report: &'a Report) -> Option<Self> {
        let carried = |direction: Direction| direction.data_bytes(report);
        let direction = match carried(Direction::Sending) > carried(Direction::Receiving) {
            true => Direction::Sending,
            false => Direction::Receiving,
        };
        let (bytes, busy) = (carried(direction), direction.ledger(report).busy());
        if bytes <= LEAST_BYTES && busy <= LEAST_TIME {
            return None;
        }
        let verdict = Verdict::of(role, direction, std::slice::from_ref(report))?;
        Some(Account {
            report,
            verdict,
            bytes,
            busy,
        })
    }

    fn sentence(&self) -> String {
        let carried = match self.verdict.direction {
            Direction::Receiving => "received",
            Direction::Sending => "sent",
        };
        let (bytes, seconds) = (self.bytes, self.busy.as_secs_f64());
        let (verdict, remedy) = (&self.verdict, self.remedy());
        format!("h2: {carried} {bytes} B in {seconds:.2} s, {verdict}{remedy}\n")
    }

    /// What lifts the cause, if this side can.
    fn remedy(&self) -> &'static str {
        let receiving = self.verdict.direction == Direction::Receiving;
        match self.verdict.cause {
            Cause::StreamWindow if receiving => "; try a larger initial_stream_window_size",
            Cause::ConnectionWindow if receiving => "; try a larger initial_connection_window_size",
            Cause::StreamCount => "; try more connections",
            _ => "",
        }
    }

    /// The fields that `fullbore get --json` has too, under the same names.
    fn json(&self) -> String {
        let Verdict {
            direction,
            cause,
            held,
            percent,
            stream_window,
            connection_window,
            max_concurrent_streams,
            ..
        } = self.verdict;
        let role = match self.verdict.role {
            Role::Client => "client",
            Role::Server => "server",
        };
        let ledger = direction.ledger(self.report);
        let mut seconds = String::new();
        for state in Stall::busy() {
            let comma = if seconds.is_empty() { "" } else { "," };
            let spent = ledger.spent(state).as_secs_f64();
            // A string takes everything.
            let _ = write!(seconds, r#"{comma}"{}":{spent:.6}"#, state.name());
        }
        let trip = match self.verdict.round_trip {
            Some(trip) => format!("{:.3}", trip.as_secs_f64() * 1e3),
            None => "null".to_owned(),
        };
        format!(
            concat!(
                r#"{{"role":"{}","direction":"{}","bytes":{},"seconds":{{{}}},"held_by":"{}","cause":"{}","percent":{:.1},"#,
                r#""stream_window":{},"connection_window":{},"largest_stream_window":{},"#,
                r#""round_trip_ms":{},"max_concurrent_streams":{}}}"#,
                "\n"
            ),
            role,
            direction.name(),
            self.bytes,
            seconds,
            held.name(),
            cause.name(),
            percent,
            stream_window,
            connection_window,
            self.report.largest_stream_receive_window,
            trip,
            max_concurrent_streams,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_proto::{Config, Connection, Time};

    #[test]
    fn idle_connections_say_nothing() {
        let connection = Connection::client(Config::default(), Time::ZERO);
        let report = connection.report(Time::from_nanos(5_000_000_000));
        assert!(Account::of(Role::Client, &report).is_none());
    }

    #[test]
    fn a_request_without_an_answer_is_told_in_both_forms() {
        let mut connection = Connection::client(Config::default(), Time::ZERO);
        let request = http::Request::get("http://example.com/").body(()).unwrap();
        connection.open(request, true).unwrap();
        let report = connection.report(Time::from_nanos(2_500_000_000));
        let account = Account::of(Role::Client, &report).unwrap();
        assert_eq!(
            account.sentence(),
            "h2: received 0 B in 2.50 s, 100 % of the time waiting for the server\n"
        );
        let json = account.json();
        assert!(json.starts_with(
            r#"{"role":"client","direction":"receiving","bytes":0,"seconds":{"moving":0.000000,"#
        ));
        assert!(
            json.contains(r#""peer":2.500000},"held_by":"peer","cause":"peer","percent":100.0,"#),
            "{json}"
        );
        assert!(
            json.ends_with("\"round_trip_ms\":null,\"max_concurrent_streams\":100}\n"),
            "{json}"
        );
    }
}
