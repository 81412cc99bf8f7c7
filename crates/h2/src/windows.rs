//! Whether receive windows grow, and the memory that those of all connections of the process may grow by.

use std::sync::OnceLock;

use fullbore_proto::MemoryBudget;

/// The variable: `fixed`, or the budget in MiB.
const VARIABLE: &str = "FULLBORE_H2_WINDOWS";

/// The budget without the variable, in MiB. The first connection may grow by an eighth of it at once.
const DEFAULT_BUDGET: u64 = 512;

static BUDGET: OnceLock<Option<MemoryBudget>> = OnceLock::new();

/// The budget of the process. None if windows are fixed.
pub(crate) fn budget() -> Option<&'static MemoryBudget> {
    if cfg!(any(feature = "fixed-windows", feature = "unstable")) {
        return None;
    }
    let budget = || {
        let value = std::env::var(VARIABLE).ok();
        mebibytes(value.as_deref()).map(|mebibytes| MemoryBudget::new(mebibytes << 20))
    };
    BUDGET.get_or_init(budget).as_ref()
}

/// The budget that the variable says. None for fixed windows.
fn mebibytes(value: Option<&str>) -> Option<u64> {
    match value {
        None | Some("") => Some(DEFAULT_BUDGET),
        Some("fixed") => None,
        Some(value) => {
            let number = value.parse().ok().filter(|&number: &u64| number < 1 << 40);
            if number.is_none() {
                tracing::warn!("{VARIABLE} is neither `fixed` nor a number of MiB: {value}");
            }
            Some(number.unwrap_or(DEFAULT_BUDGET))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_fixes_windows_or_says_how_far_they_grow() {
        for (value, budget) in [
            (None, Some(512)),
            (Some(""), Some(512)),
            (Some("fixed"), None),
            (Some("0"), Some(0)),
            (Some("4096"), Some(4_096)),
            (Some("much"), Some(512)),
            (Some("99999999999999999"), Some(512)),
        ] {
            assert_eq!(mebibytes(value), budget, "{value:?}");
        }
    }
}
