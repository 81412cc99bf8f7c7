//! The text format of Prometheus, version 0.0.4: what `metrics` and `origin_metrics` share.

use std::fmt;

/// Announces a metric: its name without the prefix, its kind and a sentence.
pub(super) fn head(f: &mut fmt::Formatter<'_>, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(f, "# HELP fullbore_{name} {help}")?;
    writeln!(f, "# TYPE fullbore_{name} {kind}")
}
