//! A page of metrics.
//!
//! Its rule: a metric has its head once, before its first value.

use std::fmt::{Display, Write};

/// A page of metrics in Prometheus' text format.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Begins a metric that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str) {
        self.head(name, help, "gauge");
    }

    /// Begins a metric that only grows.
    pub fn counter(&mut self, name: &str, help: &str) {
        self.head(name, help, "counter");
    }

    /// One value of the metric that was begun last.
    pub fn value(&mut self, name: &str, labels: &[(&str, String)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        match labels.is_empty() {
            true => self.line(format_args!("{name} {value}")),
            false => self.line(format_args!("{name}{{{}}} {value}", labels.join(","))),
        }
    }

    /// The whole page.
    pub fn text(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").unwrap_or_else(|_| unreachable!("a String takes everything"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_its_help_its_type_and_its_values() {
        let mut page = Page::default();
        page.counter("atoll_things_total", "Things.");
        page.value("atoll_things_total", &[("kind", "pod".to_owned())], 2);
        page.gauge("atoll_depth", "Depth.");
        page.value("atoll_depth", &[], 0.5);
        let text = "# HELP atoll_things_total Things.\n# TYPE atoll_things_total counter\n\
                    atoll_things_total{kind=\"pod\"} 2\n\
                    # HELP atoll_depth Depth.\n# TYPE atoll_depth gauge\natoll_depth 0.5\n";
        assert_eq!(page.text(), text);
    }
}
