//! The figures of the instances behind `fullbore proxy`, in the text format of Prometheus. `metrics` writes them behind its own.

use std::fmt;

use fullbore_proxy::{ANSWER_BOUNDS, InstanceFigures, InstanceStats};

use super::exposition::head;

/// A figure of an instance: its name, type and help, and where it is found.
type Figure<'a> = (&'a str, &'a str, &'a str, &'a dyn Fn(&InstanceStats) -> u64);

/// Writes all figures.
pub(super) fn write(f: &mut fmt::Formatter<'_>, instances: &[InstanceStats]) -> fmt::Result {
    write_answers(f, instances)?;
    write_failures(f, instances)?;
    let count = |count: usize| count as u64;
    let figures: [Figure<'_>; 6] = [
        (
            "origin_repeats_total",
            "counter",
            "Requests that another instance got, since this one could not be reached.",
            &|instance| instance.figures.repeats,
        ),
        (
            "origin_ejections_total",
            "counter",
            "How often failures in a row have left an instance out.",
            &|instance| instance.figures.ejections,
        ),
        (
            "origin_in_use",
            "gauge",
            "Whether an instance gets requests: 1 or 0.",
            &|instance| u64::from(instance.in_use),
        ),
        (
            "origin_requests",
            "gauge",
            "Requests whose response has not ended.",
            &|instance| count(instance.requests),
        ),
        (
            "origin_connections",
            "gauge",
            "Connections to an instance that take requests.",
            &|instance| count(instance.connections),
        ),
        (
            "origin_waiting",
            "gauge",
            "Requests that wait for a connection.",
            &|instance| count(instance.waiting),
        ),
    ];
    for (name, kind, help, figure) in figures {
        head(f, name, kind, help)?;
        for instance in instances {
            let origin = Label(&instance.origin);
            writeln!(f, "fullbore_{name}{{origin=\"{origin}\"}} {}", figure(instance))?;
        }
    }
    Ok(())
}

/// The time that the instances took, as a histogram.
fn write_answers(f: &mut fmt::Formatter<'_>, instances: &[InstanceStats]) -> fmt::Result {
    let help = "The time from the end of a request to the head of its response, by instance.";
    head(f, "origin_seconds", "histogram", help)?;
    for instance in instances {
        let origin = Label(&instance.origin);
        let InstanceFigures { answers, waited, .. } = &instance.figures;
        let mut within = 0;
        for (bound, count) in ANSWER_BOUNDS.iter().zip(answers) {
            within += count;
            let seconds = *bound as f64 / 1_000.0;
            writeln!(
                f,
                "fullbore_origin_seconds_bucket{{origin=\"{origin}\",le=\"{seconds}\"}} {within}"
            )?;
        }
        let all: u64 = answers.iter().sum();
        writeln!(
            f,
            "fullbore_origin_seconds_bucket{{origin=\"{origin}\",le=\"+Inf\"}} {all}"
        )?;
        let sum = waited.as_secs_f64();
        writeln!(f, "fullbore_origin_seconds_sum{{origin=\"{origin}\"}} {sum}")?;
        writeln!(f, "fullbore_origin_seconds_count{{origin=\"{origin}\"}} {all}")?;
    }
    Ok(())
}

/// What clients got in place of an answer.
fn write_failures(f: &mut fmt::Formatter<'_>, instances: &[InstanceStats]) -> fmt::Result {
    let help = "Requests without a whole answer of the instance: the status in its place, or a response that broke off.";
    head(f, "origin_failures_total", "counter", help)?;
    for instance in instances {
        let origin = Label(&instance.origin);
        let figures = &instance.figures;
        for (outcome, count) in [
            ("502", figures.bad_gateway),
            ("503", figures.unavailable),
            ("504", figures.timeouts),
            ("broken", figures.broken),
        ] {
            writeln!(
                f,
                "fullbore_origin_failures_total{{origin=\"{origin}\",outcome=\"{outcome}\"}} {count}"
            )?;
        }
    }
    Ok(())
}

/// The value of a label, in which quotes, backslashes and the ends of lines are escaped.
struct Label<'a>(&'a str);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                other => write!(f, "{other}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_each_instance_are_written_and_every_line_is_announced() {
        struct Text(Vec<InstanceStats>);
        impl fmt::Display for Text {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write(f, &self.0)
            }
        }
        let proxy = fullbore_proxy::Proxy::builder()
            .to("http://127.0.0.1:1")
            .to("unix:/run/a\"b")
            .build()
            .expect("a proxy");
        let text = Text(proxy.stats()).to_string();
        let mut announced = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                announced = rest.split(' ').next().expect("a name");
            } else if !line.starts_with("# HELP ") {
                let name = line.split('{').next().expect("a name");
                let suffix = name.strip_prefix(announced);
                assert!(
                    suffix.is_some_and(|suffix| ["", "_bucket", "_sum", "_count"].contains(&suffix)),
                    "{line}"
                );
            }
        }
        for line in [
            r#"fullbore_origin_seconds_bucket{origin="http://127.0.0.1:1",le="0.001"} 0"#,
            r#"fullbore_origin_failures_total{origin="http://127.0.0.1:1",outcome="502"} 0"#,
            r#"fullbore_origin_in_use{origin="unix:/run/a\"b"} 1"#,
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
