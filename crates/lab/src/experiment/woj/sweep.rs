//! The write-only micro-benchmarks: 4 KiB writes to one file, an fsync after every window of writes.

use super::{Bench, Measured, Operations, SSDS, file_system};
use crate::experiment::{Scale, Setting, Table};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;
use vellum_media::Preset;
use vellum_trace::generate::files;

/// The flush windows: writes between two fsyncs.
pub(super) const WINDOWS: [u64; 4] = [1, 10, 100, 1000];

/// One device in several configurations at every window.
pub(super) struct Sweep {
    pub ssd: String,
    pub names: Vec<&'static str>,
    pub points: Vec<Measured>,
}

/// Where writes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Sequential,
    /// Random, in a file eight times as large as all that is written, so that places rarely repeat. The file is empty
    /// at first: ext3 cannot preallocate.
    Random,
}

/// Sequential writes on each of the paper's SSDs.
pub(super) fn sequential_on_ssds(
    setting: &Setting<'_>,
    configurations: &[(&'static str, &'static str)],
) -> Result<Vec<Sweep>> {
    let on = |(ssd, preset)| {
        sweep(setting, format!("{ssd} SSD"), Preset::by_name(preset)?, configurations, Order::Sequential)
    };
    SSDS.into_iter().map(on).collect()
}

pub(super) fn sweep(
    setting: &Setting<'_>,
    ssd: impl Into<String>,
    preset: Preset,
    configurations: &[(&'static str, &'static str)],
    order: Order,
) -> Result<Sweep> {
    let blocks = match (setting.scale, order) {
        (Scale::Small, _) => 8_192,
        (Scale::Paper, Order::Sequential) => 2 << 20,
        (Scale::Paper, Order::Random) => 2 << 17,
    };
    let bench = Bench { setting, preset, file_system: file_system(setting), configurations };
    let seed = setting.seed;
    let points = WINDOWS.map(|window| {
        bench.run(&|| {
            Ok(match order {
                Order::Sequential => {
                    Box::new(files::write_sequential(blocks, window, false, seed)) as Operations
                }
                Order::Random => Box::new(files::write_random(8 * blocks, blocks, window, false, seed)),
            })
        })
    });
    let names = configurations.iter().map(|(name, _)| *name).collect();
    let ssd = format!("{} ({})", ssd.into(), preset.name);
    Ok(Sweep { ssd, names, points: points.into_iter().collect::<Result<_>>()? })
}

impl Sweep {
    /// MB/s of a configuration at each window.
    pub(super) fn throughput(&self, name: &str) -> Vec<f64> {
        self.column(name, Measured::megabytes_per_second)
    }

    /// Write amplification of a configuration at each window.
    pub(super) fn amplification(&self, name: &str) -> Vec<f64> {
        self.column(name, Measured::write_amplification)
    }

    /// At each window, how many times faster `a` is than `b`.
    pub(super) fn speedup(&self, a: &str, b: &str) -> Vec<f64> {
        self.throughput(a).iter().zip(self.throughput(b)).map(|(a, b)| super::ratio(*a, b)).collect()
    }

    fn column(&self, name: &str, of: fn(&Measured, usize) -> f64) -> Vec<f64> {
        let at = self.names.iter().position(|n| *n == name);
        let cell = at.expect("a sweep is asked for what it measured");
        self.points.iter().map(|point| of(point, cell)).collect()
    }

    pub(super) fn table(&self) -> Table {
        let heads = self.names.iter().flat_map(|n| [format!("{n}, MB/s"), format!("{n}, WA")]);
        let columns = std::iter::once("flush window, writes".to_string()).chain(heads);
        let mut table = Table::new(self.ssd.clone(), columns);
        for (point, window) in self.points.iter().zip(WINDOWS) {
            let cells = (0..self.names.len()).flat_map(|c| {
                let (speed, amplification) = (point.megabytes_per_second(c), point.write_amplification(c));
                [format!("{speed:.1}"), format!("{amplification:.3}")]
            });
            table.rows.push(std::iter::once(window.to_string()).chain(cells).collect());
        }
        table
    }

    pub(super) fn throughput_chart(&self) -> Chart {
        self.chart("throughput", "MB/s of the application", Sweep::throughput)
    }

    pub(super) fn amplification_chart(&self) -> Chart {
        self.chart("write amplification", "bytes programmed per byte written", Sweep::amplification)
    }

    fn chart(&self, what: &str, y: &str, of: fn(&Sweep, &str) -> Vec<f64>) -> Chart {
        Chart {
            title: format!("{}: {what}", self.ssd),
            x: "writes between two fsyncs".into(),
            y: y.into(),
            kind: ChartKind::Bars {
                groups: WINDOWS.map(|w| w.to_string()).to_vec(),
                series: self.names.iter().map(|name| (name.to_string(), of(self, name))).collect(),
            },
        }
    }
}
