//! Charts as SVG. Colours are left to the page's style sheet, so that they adapt to light and dark.
//!
//! plotters draws with placeholder colours; each represents a role, and is replaced by that role's style sheet variable
//! afterwards.

use super::{Chart, ChartKind};
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use vellum_base::{Error, Result};

pub(super) const SIZE: (u32, u32) = (860, 340);
/// Number of series with distinct colours.
pub(super) const COLOURS: usize = 10;
/// Placeholders for the page's text, faint lines, and series.
const TEXT: RGBColor = RGBColor(1, 2, 3);
const FAINT: RGBColor = RGBColor(1, 2, 4);
const SERIES: RGBColor = RGBColor(1, 3, 0);
/// Maximum width of a bar; groups are 1 apart.
const BAR_WIDTH_MAX: f64 = 0.36;
/// Bars are labelled with their values if there are at most this many.
const LABELLED_BARS_MAX: usize = 24;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Plot<'a, 'b, X> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, RangedCoordf64>>;

/// The chart as an `<svg>` element.
pub(super) fn svg(chart: &Chart) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let drawn = match &chart.kind {
            ChartKind::Bars { groups, series } => bars(&area, chart, groups, series, false),
            ChartKind::Stacked { groups, series } => bars(&area, chart, groups, series, true),
            ChartKind::Lines { series } => lines(&area, chart, series),
        };
        drawn.and_then(|()| Ok(area.present()?)).map_err(|e| Error::invalid(format!("draw a chart: {e}")))?;
    }
    Ok(styled(&text))
}

type Drawn<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn colour(series: usize) -> RGBColor {
    RGBColor(SERIES.0, SERIES.1, (series % COLOURS) as u8)
}

/// Replaces placeholders by variables, and lets the page determine the size.
fn styled(svg: &str) -> String {
    let hex = |c: RGBColor| format!("\"#{:02X}{:02X}{:02X}\"", c.0, c.1, c.2);
    let mut out = svg.replace(&hex(TEXT), "\"currentColor\"").replace(&hex(FAINT), "\"var(--faint)\"");
    for i in 0..COLOURS {
        out = out.replace(&hex(colour(i)), &format!("\"var(--s{i})\""));
    }
    out.replacen("<svg ", "<svg role=\"img\" ", 1)
}

fn mesh<X>(plot: &mut Plot<'_, '_, X>, chart: &Chart, x: Option<usize>) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut mesh = plot.configure_mesh();
    mesh.disable_x_mesh()
        .x_labels(x.unwrap_or(0))
        .y_labels(6)
        .x_desc(chart.x.as_str())
        .y_desc(chart.y.as_str())
        .axis_style(FAINT)
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 13, &TEXT))
        .axis_desc_style(("sans-serif", 13, &TEXT))
        .x_label_formatter(&|v| short(*v))
        .y_label_formatter(&|v| short(*v));
    mesh.draw()?;
    Ok(())
}

fn builder<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).margin_top(16).x_label_area_size(46).y_label_area_size(68);
    builder
}

fn bars(
    area: &Area<'_>,
    chart: &Chart,
    groups: &[String],
    series: &[(String, Vec<f64>)],
    stacked: bool,
) -> Drawn {
    let value = |s: usize, g: usize| series[s].1.get(g).copied().unwrap_or(0.0);
    let total = |g: usize| (0..series.len()).map(|s| value(s, g)).sum::<f64>();
    let all = (0..groups.len()).flat_map(|g| (0..series.len()).map(move |s| value(s, g)));
    let highest =
        if stacked { (0..groups.len()).map(total).fold(0.0, f64::max) } else { all.fold(0.0, f64::max) };
    let top = if highest > 0.0 { highest * 1.08 } else { 1.0 };
    let mut plot = builder(area).build_cartesian_2d(0.0..groups.len() as f64, 0.0..top)?;
    mesh(&mut plot, chart, None)?;
    let bars = if stacked { 1 } else { series.len() } as f64;
    let width = (0.8 / bars).min(BAR_WIDTH_MAX);
    let labelled = groups.len() * if stacked { 1 } else { series.len() } <= LABELLED_BARS_MAX;
    for (g, group) in groups.iter().enumerate() {
        let centre = g as f64 + 0.5;
        let left = centre - width * bars / 2.0;
        let mut base = 0.0;
        for s in 0..series.len() {
            let (from, x) = if stacked { (base, left) } else { (0.0, left + width * s as f64) };
            let to = from + value(s, g);
            bar(&mut plot, [(x, from), (x + width, to)], colour(s))?;
            if labelled && !stacked && value(s, g) > 0.0 {
                write(&mut plot, (x + width / 2.0, to), -3, &short(to), 11)?;
            }
            base = to;
        }
        if labelled && stacked {
            write(&mut plot, (centre, base), -3, &short(base), 12)?;
        }
        write(&mut plot, (centre, 0.0), 20, group, 13)?;
    }
    Ok(())
}

fn bar(plot: &mut Plot<'_, '_, RangedCoordf64>, corners: [(f64, f64); 2], colour: RGBColor) -> Drawn {
    let mut rectangle = Rectangle::new(corners, colour.filled());
    rectangle.set_margin(0, 0, 1, 1);
    plot.draw_series([rectangle])?;
    Ok(())
}

/// Draws text centred over a point, `down` pixels below it.
fn write(plot: &mut Plot<'_, '_, RangedCoordf64>, at: (f64, f64), down: i32, text: &str, size: i32) -> Drawn {
    let style = ("sans-serif", size, &TEXT).into_text_style(plot.plotting_area());
    let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
    plot.draw_series([EmptyElement::at(at) + Text::new(text.to_string(), (0, down), style)])?;
    Ok(())
}

fn lines(area: &Area<'_>, chart: &Chart, series: &[(String, Vec<(f64, f64)>)]) -> Drawn {
    let points = || series.iter().flat_map(|(_, points)| points.iter().copied());
    let first = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let last = points().map(|p| p.0).fold(0.0, f64::max);
    let top = points().map(|p| p.1).fold(0.0, f64::max) * 1.08;
    let (first, last) = if first < last && first > 0.0 { (first, last) } else { (0.5, last.max(1.0) * 2.0) };
    let top = if top > 0.0 { top } else { 1.0 };
    let mut plot = builder(area).build_cartesian_2d((first..last * 1.1).log_scale(), 0.0..top)?;
    mesh(&mut plot, chart, Some(8))?;
    for (s, (_, points)) in series.iter().enumerate() {
        let colour = colour(s);
        plot.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        plot.draw_series(points.iter().map(|at| Circle::new(*at, 4, colour.filled())))?;
    }
    Ok(())
}

/// Formats a number with about three digits.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 99_999.5 => super::page::grouped(value),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 99.0 => trimmed(format!("{value:.2}")), // for a percentage, the distance to 100 matters
        v if v >= 10.0 => trimmed(format!("{value:.1}")),
        0.0 => "0".into(),
        _ => trimmed(format!("{value:.2}")),
    }
}

fn trimmed(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(kind: ChartKind) -> Chart {
        Chart { title: "t".into(), x: "x & y".into(), y: "MB/s".into(), kind }
    }

    #[test]
    fn charts_are_svg_in_the_pages_colours() {
        let groups = vec!["a<b".to_string(), "c".to_string()];
        let series = vec![("one".to_string(), vec![1.0, 2.0]), ("two".to_string(), vec![3.0, 0.5])];
        let kinds = [
            ChartKind::Bars { groups: groups.clone(), series: series.clone() },
            ChartKind::Stacked { groups, series },
            ChartKind::Lines { series: vec![("l".into(), vec![(1.0, 5.0), (10.0, 7.0), (1000.0, 2.0)])] },
        ];
        for kind in kinds {
            let svg = svg(&chart(kind)).unwrap();
            assert!(svg.starts_with("<svg role") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains("var(--s0)") && svg.contains("MB/s") && svg.contains("x &amp; y"));
            assert!(!svg.contains("a<b") && !svg.contains("\"#0102") && !svg.contains("\"#0103"), "{svg}");
        }
    }

    #[test]
    fn empty_charts_are_drawn_too() {
        svg(&chart(ChartKind::Bars { groups: vec![], series: vec![] })).unwrap();
        svg(&chart(ChartKind::Lines { series: vec![] })).unwrap();
        svg(&chart(ChartKind::Lines { series: vec![("p".into(), vec![(1.0, 0.0)])] })).unwrap();
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.5, 1.234, 12.34, 99.963, 100.4, 1234.0, 1_234_567.0].map(short);
        assert_eq!(texts, ["0", "0.5", "1.23", "12.3", "99.96", "100", "1234", "1 234 567"]);
    }
}
