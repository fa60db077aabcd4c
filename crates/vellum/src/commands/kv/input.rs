//! Input files of records, read line by line, with positions for messages.

use super::lines::{Form, Line, next_line};
use super::notation::Notation;
use super::target::Hex;
use crate::failure::Failure;
use crate::ui::Ui;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use vellum::base::{Error, Result};

const BUFFER_BYTES: usize = 256 << 10;
/// Bytes between progress reports.
const TELL_EVERY_BYTES: u64 = 1 << 20;

/// Which files hold the records, and how.
#[derive(clap::Args)]
pub struct RecordFiles {
    /// The files to read [default: standard input]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    written: Written,
}

/// How records are written.
#[derive(clap::Args)]
pub struct Written {
    /// tsv or json [default: as the file's name ends, else tsv]
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    #[command(flatten)]
    hex: Hex,
}

/// A file, or standard input.
pub struct Input {
    name: String,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
    form: Form,
    notation: Notation,
    /// Bytes of the lines read so far.
    pub read_bytes: u64,
    /// Length of the file; 0 if unknown.
    pub bytes: u64,
}

impl RecordFiles {
    /// Opens all files; standard input if there are none.
    pub fn open(&self) -> Result<Vec<Input>> {
        if self.files.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Error::invalid("standard input (-) can be read once"));
        }
        match &self.files[..] {
            [] => Ok(vec![Input::open(None, &self.written)?]),
            files => files.iter().map(|path| Input::open(Some(path), &self.written)).collect(),
        }
    }
}

/// Passes every record to `put`, with its file; reports the progress of `what`.
pub fn each_record(
    inputs: Vec<Input>,
    what: &'static str,
    ui: &Ui,
    mut put: impl FnMut(&[u8], &[u8], &Input) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let all = inputs.iter().map(|input| input.bytes).sum();
    let (mut progress, mut before, mut told) = (ui.progress(what), 0, 0);
    for mut input in inputs {
        while let Some(line) = input.next(Form::read)? {
            if let Line::Put(key, value) = line {
                put(&key, &value, &input)?;
            }
            let read = before + input.read_bytes;
            if read - told >= TELL_EVERY_BYTES {
                progress(read, all);
                told = read;
            }
        }
        before += input.read_bytes;
    }
    Ok(())
}

impl Input {
    /// Opens `path`; no path, and `-`, are standard input.
    pub fn open(path: Option<&PathBuf>, written: &Written) -> Result<Input> {
        let path = path.map(PathBuf::as_path).filter(|path| path.as_os_str() != "-");
        let (form, notation) = (written.form, written.hex.notation());
        let form = form.unwrap_or_else(|| path.map_or(Form::Tsv, Form::of));
        let (reader, bytes): (Box<dyn BufRead>, u64) = match path {
            None => (Box::new(std::io::stdin().lock()), 0),
            Some(path) => file(path)?,
        };
        let name = path.map_or("standard input".into(), |path| path.display().to_string());
        Ok(Input { name, reader, line: Vec::new(), number: 0, form, notation, read_bytes: 0, bytes })
    }

    /// Position of the line that was read last, for messages.
    pub fn place(&self) -> String {
        format!("{}, line {}", self.name, self.number)
    }

    /// Parses the next non-empty line with `read`; an error names the line.
    pub fn next<T>(&mut self, read: fn(Form, &[u8], Notation) -> Result<T>) -> Result<Option<T>> {
        loop {
            self.number += 1;
            let line = match next_line(&mut *self.reader, &mut self.line) {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(None),
                Err(e) => return Err(e.context(self.place())),
            };
            self.read_bytes += line.len() as u64 + 1;
            if !line.is_empty() {
                let made = read(self.form, line, self.notation);
                return made.map(Some).map_err(|e| e.context(self.place()));
            }
        }
    }
}

fn file(path: &Path) -> Result<(Box<dyn BufRead>, u64)> {
    let said = |e| Error::io(format!("read {}", path.display()), e);
    let file = File::open(path).map_err(said)?;
    let bytes = file.metadata().map_err(said)?.len();
    Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, file)), bytes))
}
