//! The plots of BENCHMARKS.md, drawn as SVG from the tables in `bench/results`. Their colours are legible on light and on
//! dark backgrounds.

mod growth;

use std::fmt::Write as _;
use std::path::Path;

use crate::error::Error;
use crate::markdown::Read;

/// The size of a plot, in pixels. Each has two panels, one beside the other.
const WIDTH: f64 = 920.0;
const PANEL: f64 = WIDTH / 2.0;
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#57606a}.title{font-weight:600;font-size:14px}\
    .small{font-size:11px}.end{text-anchor:end}.mid{text-anchor:middle}.ours{fill:#d9480f}.first{fill:#4c6ef5}\
    .second{fill:#868e96}.third{fill:#2b8a3e}.fourth{fill:#ae3ec9}.tls{opacity:.55}\
    .curve{stroke-width:2;stroke-linejoin:round}.curve.ours{stroke:#d9480f}.curve.first{stroke:#4c6ef5}\
    .curve.second{stroke:#868e96}.curve.third{stroke:#2b8a3e}.curve.fourth{stroke:#ae3ec9}\
    .curve{fill:none!important}.dashed{stroke-dasharray:4 3}.grid{stroke:#868e96;stroke-opacity:.35}.spread{stroke:#57606a;stroke-width:1.5}\
    @media(prefers-color-scheme:dark){text{fill:#c9d1d9}.spread{stroke:#c9d1d9}}";

/// Of `paths`: clients that transfer with `fullbore serve`, by the columns of the two tables.
const CLIENTS: [[(&str, &str, &str); 3]; 2] = [
    [
        ("get < serve", "fullbore get", "ours"),
        ("curl < serve", "curl", "first"),
        ("nghttp < serve", "nghttp", "second"),
    ],
    [
        ("put > serve", "fullbore put", "ours"),
        ("curl > serve", "curl", "first"),
        ("Go > serve", "Go net/http", "second"),
    ],
];
const MEGABYTES: f64 = 67.108_864;
/// The rate of the link.
const MOST_MB_A_SECOND: f64 = 125.0;

/// Draws a plot of a table, unless that lacks something.
type Draw = fn(&str) -> Option<String>;

/// Each plot: the table that it is drawn from, its own name, and how.
const PLOTS: [(&str, &str, Draw); 4] = [
    ("paths", "throughput", throughput),
    ("servers", "cpu", cpu),
    ("growth", "growth", growth::cost),
    ("growth", "growth-latency", growth::latency),
];

/// Draws the plots of one case, or of all, into the folder of the tables.
pub(crate) fn draw(results: &Path, case: Option<&str>) -> Result<(), Error> {
    for (from, to, plot) in PLOTS {
        if case.is_some_and(|case| case != from) {
            continue;
        }
        let source = results.join(from).with_extension("tsv");
        let tsv = std::fs::read_to_string(&source).map_err(|error| Error::File(source.clone(), error))?;
        let missing = || {
            Error::Output(
                source.display().to_string(),
                "a table or a column is missing".to_owned(),
            )
        };
        let svg = plot(&tsv).ok_or_else(missing)?;
        let file = results.join(to).with_extension("svg");
        std::fs::write(&file, svg).map_err(|error| Error::File(file.clone(), error))?;
    }
    Ok(())
}

/// A drawing under way.
struct Svg(String);

impl Svg {
    fn new(height: f64) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
             <style>{STYLE}</style>\n"
        ))
    }

    fn text(&mut self, [x, y]: [f64; 2], class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>"
        );
    }

    fn bar(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], class: &str) {
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        );
    }

    fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str) {
        let _ = writeln!(
            self.0,
            "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" class=\"{class}\" fill=\"none\"/>"
        );
    }

    /// A line through points, with a dot at each.
    fn curve(&mut self, points: &[[f64; 2]], class: &str) {
        let mut path = String::new();
        for (number, [x, y]) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if number == 0 { "M" } else { "L" });
        }
        let _ = writeln!(self.0, "<path d=\"{path}\" class=\"curve {class}\"/>");
        let solid = class.split(' ').next().unwrap_or(class);
        for [x, y] in points {
            let _ = writeln!(
                self.0,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" class=\"{solid}\"/>"
            );
        }
    }

    /// Squares of colours with their names, from left to right.
    fn legend(&mut self, [mut x, y]: [f64; 2], entries: &[(&str, &str)]) {
        for (name, class) in entries {
            self.bar([x, y - 10.0], [11.0, 11.0], class);
            self.text([x + 16.0, y], "small", name);
            x += 34.0 + 6.5 * name.len() as f64;
        }
    }

    fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}

/// Throughput by round trip: groups of vertical bars, down and up.
fn throughput(tsv: &str) -> Option<String> {
    const TOP: f64 = 66.0;
    const BOTTOM: f64 = 286.0;
    const LEFT: f64 = 44.0;
    let mut svg = Svg::new(326.0);
    let titles = [
        "Download of 64 MiB, MB/s",
        "Upload of 64 MiB on a new connection, MB/s",
    ];
    for (number, (title, clients)) in titles.into_iter().zip(CLIENTS).enumerate() {
        let left = number as f64 * PANEL + LEFT;
        let width = PANEL - LEFT - 16.0;
        let y = |figure: f64| BOTTOM - figure / MOST_MB_A_SECOND * (BOTTOM - TOP);
        svg.text([left, 20.0], "title", title);
        svg.legend([left, 44.0], &clients.map(|(_, name, class)| (name, class)));
        for figure in [0.0, 25.0, 50.0, 75.0, 100.0, 125.0] {
            svg.line([left, y(figure)], [left + width, y(figure)], "grid");
            svg.text([left - 6.0, y(figure) + 4.0], "small end", &figure.to_string());
        }
        let table = Read::find(tsv, "One stream over a long path", number)?;
        let [a, b, c] = clients.map(|(column, ..)| column);
        let rows = table.columns(["round trip", "limit, s", a, b, c])?;
        let group = width / rows.len() as f64;
        for (at, [rtt, limit, percents @ ..]) in rows.into_iter().enumerate() {
            let from = left + at as f64 * group + group * 0.14;
            for (column, (percent, (_, _, class))) in percents.into_iter().zip(clients).enumerate() {
                let speed = percent.parse::<f64>().ok()? / 100.0 * MEGABYTES / limit.parse::<f64>().ok()?;
                let bar = group * 0.24;
                svg.bar(
                    [from + column as f64 * bar, y(speed)],
                    [bar - 1.0, BOTTOM - y(speed)],
                    class,
                );
            }
            svg.text([left + (at as f64 + 0.5) * group, BOTTOM + 17.0], "mid", rtt);
        }
        svg.text([left + width / 2.0, BOTTOM + 35.0], "small mid", "round trip");
    }
    Some(svg.finish())
}

/// Processor time of servers: horizontal bars, a request and a MB.
fn cpu(tsv: &str) -> Option<String> {
    const TOP: f64 = 62.0;
    const LEFT: f64 = 164.0;
    const ROW: f64 = 38.0;
    let panels = [
        (
            "12 bytes, 1 x 100",
            "CPU a request, us",
            "CPU a request of 12 bytes, µs",
        ),
        ("1 GiB, 1 x 1", "CPU a MB, us", "CPU a MB of one 1 GiB body, µs"),
    ];
    let mut svg = Svg::new(TOP + 8.0 * ROW + 8.0);
    for (number, (heading, column, title)) in panels.into_iter().enumerate() {
        let left = number as f64 * PANEL + LEFT;
        let table = Read::find(tsv, heading, 0)?;
        let spread = [column, &format!("{column}, least"), &format!("{column}, most")];
        let rows = table.columns(["server", "transport", spread[0], spread[1], spread[2]])?;
        // The plain writes and the same files under hyper are in the table only.
        let known = |server: &str| !server.starts_with("plain") && !server.ends_with("same files");
        let rows: Vec<_> = rows.into_iter().filter(|[server, ..]| known(server)).collect();
        let servers = rows
            .iter()
            .filter(|[_, transport, ..]| *transport == "cleartext")
            .map(|[server, ..]| *server);
        let most = rows
            .iter()
            .filter_map(|[.., most]| most.parse::<f64>().ok())
            .fold(0.0_f64, f64::max);
        let x = |figure: f64| left + figure / most * (PANEL - LEFT - 50.0);
        svg.text([left - 150.0, 20.0], "title", title);
        svg.legend(
            [left - 150.0, 44.0],
            &[
                ("fullbore", "ours"),
                ("peer", "first"),
                ("faded: over TLS", "first tls"),
            ],
        );
        for (at, server) in servers.enumerate() {
            let y = TOP + at as f64 * ROW;
            svg.text([left - 8.0, y + 19.0], "end", server);
            let colour = if server.starts_with("fullbore") {
                "ours"
            } else {
                "first"
            };
            for (offset, transport, shade) in [(0.0, "cleartext", ""), (14.0, "TLS", " tls")] {
                let row = rows.iter().find(|row| row[0] == server && row[1] == transport)?;
                // A server that is not installed has no bar.
                let [Ok(median), Ok(least), Ok(most)] = [row[2], row[3], row[4]].map(str::parse::<f64>)
                else {
                    continue;
                };
                let top = y + 2.0 + offset;
                svg.bar([left, top], [x(median) - left, 12.0], &format!("{colour}{shade}"));
                svg.line([x(least), top + 6.0], [x(most), top + 6.0], "spread");
                svg.text([x(median.max(most)) + 5.0, top + 10.0], "small", row[2]);
            }
        }
    }
    Some(svg.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_have_a_bar_for_each_figure_and_no_plot_lacks_a_table() {
        let servers = "# 12 bytes, 1 x 100\nserver\ttransport\tCPU a request, us\tCPU a request, us, least\tCPU a request, us, most\n\
             h2o\tcleartext\t2\t1\t3\nh2o\tTLS\t4\t4\t4\n\n";
        assert_eq!(cpu(servers), None);
        let both = servers.to_owned()
            + &servers
                .replace("12 bytes, 1 x 100", "1 GiB, 1 x 1")
                .replace("a request", "a MB");
        let svg = cpu(&both).expect("both tables are there");
        // Four bars, and three squares in each legend.
        assert_eq!(svg.matches("<rect").count(), 4 + 6);
        assert_eq!(throughput(&both), None);
    }
}
