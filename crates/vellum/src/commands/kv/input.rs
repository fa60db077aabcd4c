//! Files of records as commands read them: line by line, with where they are.

use super::lines::{Form, next_line};
use super::notation::Notation;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use vellum::base::{Error, Result};

const BUFFER_BYTES: usize = 256 << 10;

/// A file, or standard input.
pub struct Input {
    name: String,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
    form: Form,
    notation: Notation,
    /// Bytes of lines read so far.
    pub read_bytes: u64,
    /// Length of the file; 0 where that cannot be told.
    pub bytes: u64,
}

impl Input {
    /// Opens `path`; none, and `-`, are standard input.
    pub fn open(path: Option<&PathBuf>, form: Option<Form>, notation: Notation) -> Result<Input> {
        let path = path.map(PathBuf::as_path).filter(|path| path.as_os_str() != "-");
        let form = form.unwrap_or_else(|| path.map_or(Form::Tsv, Form::of));
        let (reader, bytes): (Box<dyn BufRead>, u64) = match path {
            None => (Box::new(std::io::stdin().lock()), 0),
            Some(path) => file(path)?,
        };
        let name = path.map_or("standard input".into(), |path| path.display().to_string());
        Ok(Input { name, reader, line: Vec::new(), number: 0, form, notation, read_bytes: 0, bytes })
    }

    /// Opens all of `paths`; standard input if there are none.
    pub fn all(paths: &[PathBuf], form: Option<Form>, notation: Notation) -> Result<Vec<Input>> {
        match paths {
            [] => Ok(vec![Input::open(None, form, notation)?]),
            _ => paths.iter().map(|path| Input::open(Some(path), form, notation)).collect(),
        }
    }

    /// The line that was read last, for people.
    pub fn place(&self) -> String {
        format!("{}, line {}", self.name, self.number)
    }

    /// What `read` makes of the next line that is not empty; an error names the line.
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
