//! A chart as a separate file: in a page, heading and legend are part of the page; here they are part of the image.

use super::Chart;
use super::chart::{self, COLOURS};
use super::page::escape;
use vellum_base::Result;

const COLOUR_STYLE: &str = include_str!("colours.css");
const WIDTH: usize = 860;
/// Height of a line of the legend, and of the title above it.
const LINE: usize = 20;
/// Approximate width of a letter.
const LETTER: usize = 8;

pub(super) fn of(chart: &Chart) -> Result<String> {
    let drawing = chart::svg(chart)?;
    let (legend, lines) = legend(chart);
    let above = LINE * (lines + 1) + 8;
    let height = above + chart::SIZE.1 as usize;
    let inner = drawing.replacen("<svg ", &format!("<svg y=\"{above}\" "), 1);
    let title = escape(&chart.title);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n<title>{title}</title>\n\
         <style>\n{COLOUR_STYLE}svg {{ color: var(--text); }}\ntext {{ fill: var(--text); }}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" style=\"fill: var(--back)\"/>\n\
         <text x=\"8\" y=\"{LINE}\" font-size=\"15\" font-weight=\"bold\">{title}</text>\n{legend}{inner}</svg>\n"
    ))
}

/// A mark and a name for each series, and the number of lines they take.
fn legend(chart: &Chart) -> (String, usize) {
    let (mut out, mut x, mut line) = (String::new(), 8, 1);
    for (i, name) in chart.series().enumerate() {
        let width = 20 + LETTER * name.chars().count() + 16;
        if x + width > WIDTH && x > 8 {
            (x, line) = (8, line + 1);
        }
        let y = LINE * (line + 1);
        out += &format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" style=\"fill: var(--s{})\"/>\
             <text x=\"{}\" y=\"{y}\">{}</text>\n",
            y - 11,
            i % COLOURS,
            x + 18,
            escape(name)
        );
        x += width;
    }
    (out, line)
}

#[cfg(test)]
mod tests {
    use super::super::ChartKind;
    use super::*;

    #[test]
    fn an_image_has_all_that_its_page_would_say() {
        let series: Vec<_> =
            (0..12).map(|i| (format!("series <{i}> of some length"), vec![1.0, 2.0])).collect();
        let kind = ChartKind::Bars { groups: vec!["a".into(), "b".into()], series };
        let chart = Chart { title: "T & U".into(), x: "x".into(), y: "y".into(), kind };
        let image = of(&chart).unwrap();
        assert!(image.contains("<title>T &amp; U</title>") && image.contains("prefers-color-scheme: dark"));
        assert_eq!(image.matches("series &lt;").count(), 12);
        assert!(!image.contains("series <") && image.ends_with("</svg>\n"));
        assert!(image.matches("<svg ").count() == 2 && image.matches("</svg>").count() == 2);
    }
}
