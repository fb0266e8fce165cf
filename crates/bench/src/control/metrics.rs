//! What the controller says of itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result};

/// A page of metrics.
pub(super) struct Page(String);

impl Page {
    /// Reads the page.
    pub(super) fn read(address: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(address)
            .with_context(|| format!("cannot read the controller's metrics at {address}"))?;
        let request = "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(Page(text))
    }

    /// The sum of a metric's values over all its labels.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.values(name).map(|(_, value)| value).sum()
    }

    /// The value of a metric with this label.
    pub(super) fn with_label(&self, name: &str, label: &str) -> Option<f64> {
        self.values(name).find(|(labels, _)| labels.contains(label)).map(|(_, value)| value)
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
            let whole = labels.is_empty() || labels.starts_with('{');
            Some((labels, value.parse().ok()?)).filter(|_| whole)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_label() {
        let text = "# TYPE a counter\na{kind=\"pod\"} 3\na{kind=\"port\"} 4\na_depth 9\n";
        let page = Page(text.into());
        assert_eq!((page.sum("a"), page.sum("a_depth"), page.sum("b")), (7.0, 9.0, 0.0));
        assert_eq!(page.with_label("a", "kind=\"port\""), Some(4.0));
        assert_eq!(page.with_label("a", "kind=\"node\""), None);
    }
}
