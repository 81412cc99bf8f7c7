//! The curves of the case `growth`: one panel for each of its tables, both axes logarithmic.

use super::{PANEL, Svg};
use crate::cases::growth::{ALL, CPU, Growth, MEDIAN, MEMORY, P99};
use crate::markdown::Read;

/// As the tables name them, in short, and their colours.
const SERVERS: [(&str, &str, &str); 5] = [
    ("fullbore serve", "fullbore", "ours"),
    ("hyper, current thread", "hyper", "first"),
    ("nghttpd", "nghttpd", "second"),
    ("h2o", "h2o", "third"),
    ("nginx", "nginx", "fourth"),
];
const HEIGHT: f64 = 330.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 282.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 18.0;
/// More names than that under one axis would touch each other.
const NAMES: usize = 9;

/// One panel: a table, and the columns that its curves are drawn from, the second one dashed.
type Panel<'a> = (&'a Growth, &'a [&'a str], &'a str);

/// Processor time a request, and memory by connections.
pub(super) fn cost(tsv: &str) -> Option<String> {
    let mut panels: Vec<Panel<'_>> = ALL
        .iter()
        .map(|growth| (growth, [CPU].as_slice(), "CPU a request, µs"))
        .collect();
    panels.push((ALL.first()?, &[MEMORY], "peak memory, MiB"));
    draw(tsv, &panels)
}

/// The time of the middle request, and of the slowest of a hundred.
pub(super) fn latency(tsv: &str) -> Option<String> {
    let panels: Vec<Panel<'_>> = ALL
        .iter()
        .map(|growth| (growth, [MEDIAN, P99].as_slice(), "p50, µs (dashed: p99)"))
        .collect();
    draw(tsv, &panels)
}

fn draw(tsv: &str, panels: &[Panel<'_>]) -> Option<String> {
    let mut svg = Svg::new(panels.len().div_ceil(2) as f64 * HEIGHT);
    for (number, (growth, columns, unit)) in panels.iter().enumerate() {
        let table = Read::find(tsv, growth.heading, 0)?;
        let at = [(number % 2) as f64 * PANEL + LEFT, (number / 2) as f64 * HEIGHT];
        svg.text([at[0] - 38.0, at[1] + 20.0], "title", growth.heading);
        svg.text([at[0] - 38.0, at[1] + 60.0], "small", unit);
        svg.legend(
            [at[0] - 38.0, at[1] + 42.0],
            &SERVERS.map(|(_, name, class)| (name, class)),
        );
        let mut curves = Vec::new();
        for column in *columns {
            curves.push(table.columns([growth.column, "server", column])?);
        }
        panel(&mut svg, at, growth.column, &curves)?;
    }
    Some(svg.finish())
}

/// Curves in one frame. The points lie at equal distances, because each is a multiple of the one before; 0 comes first.
fn panel(svg: &mut Svg, [left, top]: [f64; 2], column: &str, curves: &[Vec<[&str; 3]>]) -> Option<()> {
    let mut names: Vec<&str> = curves.first()?.iter().map(|[name, ..]| *name).collect();
    names.dedup();
    let figures = || {
        curves
            .iter()
            .flatten()
            .filter_map(|row| row[2].parse::<f64>().ok().filter(|figure| *figure > 0.0))
    };
    let [least, most] = [figures().fold(f64::MAX, f64::min), figures().fold(0.0, f64::max)];
    let (low, high) = (least.log10() - 0.05, most.log10() + 0.05);
    let width = PANEL - LEFT - RIGHT;
    let x = |place: usize| left + place as f64 / (names.len().max(2) - 1) as f64 * width;
    let y = |figure: f64| top + BOTTOM - (figure.log10() - low) / (high - low) * (BOTTOM - TOP);
    let lines: &[f64] = match high - low {
        span if span > 2.5 => &[1.0],
        span if span > 0.8 => &[1.0, 2.0, 5.0],
        _ => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
    };
    for decade in low.floor() as i32..=high.ceil() as i32 {
        for digit in lines {
            let figure = digit * 10.0_f64.powi(decade);
            if figure < least || figure > most {
                continue;
            }
            svg.line([left, y(figure)], [left + width, y(figure)], "grid");
            svg.text([left - 6.0, y(figure) + 4.0], "small end", &figure.to_string());
        }
    }
    for (place, name) in names.iter().enumerate() {
        // From the right: the last one is the most.
        if names.len() <= NAMES || (names.len() - 1 - place) % 2 == 0 {
            svg.text([x(place), top + BOTTOM + 16.0], "small mid", name);
        }
    }
    svg.text([left + width / 2.0, top + BOTTOM + 33.0], "small mid", column);
    // fullbore's comes last, above the others.
    for (server, _, class) in SERVERS.iter().rev() {
        for (curve, dash) in curves.iter().zip(["", " dashed"]) {
            let points = curve
                .iter()
                .filter(|[_, of, _]| of == server)
                .filter_map(|[name, _, figure]| {
                    let place = names.iter().position(|one| one == name)?;
                    // A server that failed has no point.
                    Some([x(place), y(figure.parse().ok()?)])
                });
            svg.curve(&points.collect::<Vec<_>>(), &format!("{class}{dash}"));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_a_curve_in_every_panel() {
        let mut tsv = String::new();
        for growth in &ALL {
            tsv += &format!(
                "# {}\n{}\tserver\t{CPU}\t{MEDIAN}\t{P99}\t{MEMORY}\n",
                growth.heading, growth.column
            );
            for (server, ..) in SERVERS {
                tsv += &format!("1\t{server}\t10\t100\t200\t1\n10\t{server}\t20\t150\t900\t2\n");
            }
            tsv += "\n";
        }
        let count = |svg: Option<String>| svg.map(|svg| svg.matches("class=\"curve").count());
        assert_eq!(count(cost(&tsv)), Some(6 * SERVERS.len()));
        assert_eq!(count(latency(&tsv)), Some(5 * 2 * SERVERS.len()));
        assert_eq!(cost(tsv.split("# Streams").next().unwrap_or_default()), None);
    }
}
