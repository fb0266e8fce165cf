//! Curves of what was measured as something grows, drawn as SVG beside the document.
//!
//! The rule: a plot shows numbers of a table in the same section, and nothing else.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::{
    ChartBuilder, Circle, DrawingBackend, IntoDrawingArea, LineSeries, PathElement, SVGBackend,
};
use plotters::style::{Color, RGBColor, WHITE};

const SIZE: (u32, u32) = (720, 360);
/// Told apart also by who sees few colours, and in print by their order from dark to light.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 68, 136),
    RGBColor(187, 85, 102),
    RGBColor(221, 170, 51),
    RGBColor(0, 153, 136),
    RGBColor(120, 120, 120),
];

/// Lines over how much there is of something, which grows by factors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plot {
    /// The name of its file, without a folder.
    pub(crate) file: &'static str,
    pub(crate) title: String,
    pub(crate) across: &'static str,
    pub(crate) up: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// What one contestant did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Plot {
    /// What a document says to show it, when it lies in `folder` beside the document.
    pub(crate) fn markdown(&self, folder: &str) -> String {
        format!("![{}]({folder}/{})", self.title, self.file)
    }

    /// Draws it into a folder.
    pub(crate) fn draw(&self, folder: &Path) -> Result<()> {
        let path = folder.join(self.file);
        let svg = self.svg()?;
        std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))
    }

    fn svg(&self) -> Result<String> {
        let mut text = String::new();
        self.draw_on(SVGBackend::with_string(&mut text, SIZE))
            .with_context(|| format!("cannot draw {}", self.file))?;
        Ok(text)
    }

    fn draw_on<B: DrawingBackend>(&self, backend: B) -> Result<()> {
        let (most_across, most_up) = self.corner()?;
        let area = backend.into_drawing_area();
        area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d((1.0..most_across * 1.2).log_scale(), 0.0..most_up * 1.25)
            .map_err(|error| anyhow!("{error}"))?;
        chart
            .configure_mesh()
            .x_desc(self.across)
            .y_desc(self.up)
            .light_line_style(WHITE)
            .draw()
            .map_err(|error| anyhow!("{error}"))?;
        for (line, colour) in self.lines.iter().zip(COLOURS) {
            let points = line.points.iter().copied();
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))
                .map_err(|error| anyhow!("{error}"))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.filled()));
            chart
                .draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))
                .map_err(|error| anyhow!("{error}"))?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .draw()
            .map_err(|error| anyhow!("{error}"))?;
        area.present().map_err(|error| anyhow!("{error}"))
    }

    /// The most of what grows, and the most that was measured.
    fn corner(&self) -> Result<(f64, f64)> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        ensure!(points().next().is_some(), "{} has no point", self.file);
        ensure!(self.lines.len() <= COLOURS.len(), "{} has too many lines", self.file);
        ensure!(points().all(|point| point.0 >= 1.0), "what grows in {} begins below 1", self.file);
        let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
        Ok((most(|point| point.0), most(|point| point.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(lines: Vec<Line>) -> Plot {
        let title = "As services grow".into();
        Plot { file: "services.svg", title, across: "services", up: "µs", lines }
    }

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line { name: name.to_owned(), points: points.to_vec() }
    }

    #[test]
    fn a_plot_names_its_axes_and_lines_and_marks_every_point() {
        let points = [(1.0, 5.0), (100.0, 5.1), (10_000.0, 5.0)];
        let svg = plot(vec![line("Atoll", &points), line("nft", &points)]).svg().unwrap();
        for word in ["As services grow", "services", "µs", "Atoll", "nft"] {
            assert!(svg.contains(word), "{word} is missing");
        }
        assert_eq!(svg.matches("<circle").count(), 2 * points.len());
    }

    #[test]
    fn a_plot_lies_in_a_folder_beside_its_document() {
        let folder = tempfile::tempdir().unwrap();
        let plot = plot(vec![line("Atoll", &[(1.0, 5.0)])]);
        plot.draw(folder.path()).unwrap();
        assert!(folder.path().join("services.svg").exists());
        assert_eq!(plot.markdown("plots"), "![As services grow](plots/services.svg)");
    }

    #[test]
    fn what_cannot_be_drawn_is_refused_by_the_name_of_its_file() {
        let message = |lines| plot(lines).svg().unwrap_err().root_cause().to_string();
        assert_eq!(message(vec![]), "services.svg has no point");
        let none = line("Atoll", &[(0.0, 1.0)]);
        assert_eq!(message(vec![none]), "what grows in services.svg begins below 1");
        let many = vec![line("Atoll", &[(1.0, 1.0)]); 6];
        assert_eq!(message(many), "services.svg has too many lines");
    }
}
