//! The results of a run as plain data. Each file in `report/` renders them in one format.

mod bars;
mod html;
mod json;
mod lines;
mod row;
mod table;
mod unit;

use std::io;
use std::path::Path;

use serde::Serialize;

pub use row::{Goal, Row, Side};
pub use unit::{Unit, figure, many};

/// Everything that one run has found.
pub struct Report {
    /// Which [`Scale`](crate::scale::Scale) was measured.
    pub scale: &'static str,
    /// What it was measured on.
    pub machine: String,
    /// One for each benchmark, in the order of the run.
    pub entries: Vec<Entry>,
}

/// How one benchmark ended.
pub struct Entry {
    /// The name by which it is called.
    pub name: &'static str,
    /// What it compares.
    pub about: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// The result.
    pub ending: Ending,
}

/// The result of a benchmark.
pub enum Ending {
    /// It was measured.
    Measured(Findings),
    /// It could not run, because this is missing.
    Missing(String),
    /// It failed.
    Failed(String),
}

/// What a benchmark measured.
#[derive(Default)]
pub struct Findings {
    /// Lines of the table.
    pub rows: Vec<Row>,
    /// Curves of values over size.
    pub growths: Vec<Growth>,
}

/// Curves over one axis, such as throughput over receipts.
#[derive(Clone, Serialize)]
pub struct Growth {
    /// What it shows.
    pub what: String,
    /// What the horizontal axis counts.
    pub over: &'static str,
    /// The unit of the vertical axis.
    pub unit: Unit,
    /// Each with its name and points.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
}

impl Report {
    /// The one table, for a terminal.
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// Writes `report.json` and `report.html` into a folder.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("report.json"), json::render(self))?;
        std::fs::write(folder.join("report.html"), html::render(self))
    }

    /// Benchmarks that did not run.
    pub fn unmeasured(&self) -> usize {
        self.entries.iter().filter(|entry| !matches!(entry.ending, Ending::Measured(_))).count()
    }

    /// Goals that were missed.
    pub fn missed(&self) -> usize {
        self.rows().filter(|row| row.met() == Some(false)).count()
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.entries.iter().flat_map(|entry| match &entry.ending {
            Ending::Measured(findings) => &findings.rows[..],
            Ending::Missing(_) | Ending::Failed(_) => &[],
        })
    }
}
