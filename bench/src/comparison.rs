//! Programs measured in turn, so that other load on the machine falls on all of them alike.

use crate::error::Error;
use crate::stats::Spread;

/// A program in one setting, measured again and again.
pub(crate) struct Candidate<'a, T> {
    name: String,
    ours: bool,
    measure: Box<dyn FnMut() -> Result<T, Error> + 'a>,
}

impl<'a, T> Candidate<'a, T> {
    /// fullbore, whose failure makes the whole run fail, or a peer, whose failure is told beside the table.
    pub(crate) fn new(
        name: impl Into<String>,
        ours: bool,
        measure: impl FnMut() -> Result<T, Error> + 'a,
    ) -> Self {
        Self {
            name: name.into(),
            ours,
            measure: Box::new(measure),
        }
    }

    /// fullbore.
    pub(crate) fn ours(name: impl Into<String>, measure: impl FnMut() -> Result<T, Error> + 'a) -> Self {
        Self::new(name, true, measure)
    }

    /// A peer.
    pub(crate) fn peer(name: impl Into<String>, measure: impl FnMut() -> Result<T, Error> + 'a) -> Self {
        Self::new(name, false, measure)
    }
}

/// What one candidate was measured to do.
pub(crate) struct Series<T> {
    pub(crate) name: String,
    pub(crate) ours: bool,
    /// One for each run; `None` where it failed or was left out after a failure.
    pub(crate) samples: Vec<Option<T>>,
    /// Why it failed, if it did.
    pub(crate) error: Option<Error>,
}

/// Measures every candidate once a run. One that failed is left out of the runs that follow.
pub(crate) fn compare<T>(runs: u32, candidates: Vec<Candidate<'_, T>>) -> Vec<Series<T>> {
    let mut candidates = candidates;
    let mut all: Vec<Series<T>> = candidates
        .iter()
        .map(|one| Series {
            name: one.name.clone(),
            ours: one.ours,
            samples: Vec::new(),
            error: None,
        })
        .collect();
    for _ in 0..runs {
        for (candidate, series) in candidates.iter_mut().zip(&mut all) {
            let sample = match series.error {
                Some(_) => None,
                None => (candidate.measure)()
                    .map_err(|error| series.error = Some(error))
                    .ok(),
            };
            series.samples.push(sample);
        }
    }
    all
}

impl<T> Series<T> {
    /// The spread of a figure drawn from each sample.
    pub(crate) fn spread(&self, figure: impl Fn(&T) -> f64) -> Option<Spread> {
        let figures: Vec<f64> = self.samples.iter().flatten().map(figure).collect();
        Spread::of(&figures)
    }

    /// The same as a table's cell.
    pub(crate) fn cell(&self, digits: usize, figure: impl Fn(&T) -> f64) -> String {
        self.spread(figure)
            .map_or_else(|| "failed".to_owned(), |spread| spread.text(digits))
    }
}

/// A figure of `own` in so many times the same of `peer`: the spread of the ratios of one run each.
pub(crate) fn ratio_of<T>(own: &Series<T>, peer: &Series<T>, figure: impl Fn(&T) -> f64) -> Option<Spread> {
    let pairs = own.samples.iter().zip(&peer.samples);
    let ratios: Vec<f64> = pairs
        .filter_map(|(own, peer)| Some(figure(own.as_ref()?) / figure(peer.as_ref()?)))
        .collect();
    Spread::of(&ratios)
}

/// How many times as fast as `peer` the candidate `own` was: the spread of the ratios of one run each, of seconds.
pub(crate) fn speedup(own: &Series<f64>, peer: &Series<f64>) -> Option<Spread> {
    ratio_of(peer, own, |seconds| *seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn contenders_take_turns() {
        let order = RefCell::new(String::new());
        let mark = |letter: char| {
            order.borrow_mut().push(letter);
            Ok(1.0)
        };
        let all = compare(
            2,
            vec![
                Candidate::ours("a", || mark('a')),
                Candidate::peer("b", || mark('b')),
            ],
        );
        assert_eq!(order.borrow().as_str(), "abab");
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn a_contender_that_failed_is_left_out_and_named() {
        let mut left = 1;
        let failing = move || {
            left -= 1;
            if left < 0 { Err(Error::Over) } else { Ok(4.0) }
        };
        let all = compare(
            3,
            vec![
                Candidate::ours("own", || Ok(2.0)),
                Candidate::peer("peer", failing),
            ],
        );
        let [own, peer] = all.as_slice() else {
            panic!("two candidates have two series")
        };
        assert_eq!(peer.samples, [Some(4.0), None, None]);
        assert!(matches!(peer.error, Some(Error::Over)));
        assert_eq!(speedup(own, peer), Spread::of(&[2.0]));
        assert_eq!(peer.cell(1, |seconds| *seconds), "4.0");
    }
}
