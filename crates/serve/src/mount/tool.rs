//! Runs tools of the host, and turns their failures into errors with a remedy.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use vellum_base::{Error, Kind, Result};

/// Runs `tool` and returns its output. [`Kind::Unsupported`] if it is not installed, [`Kind::Busy`] if it reports that
/// something is in use.
pub(super) fn run(tool: &str, args: &[&OsStr]) -> Result<String> {
    let out = Command::new(tool)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        // An interrupt from the terminal is meant for us; the tool completes its step.
        .process_group(0)
        .output()
        .map_err(|e| missing_or(tool, e))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    // That something is in use, such tools say in words only.
    let kind = if said.contains("busy") { Kind::Busy } else { Kind::Io };
    Err(Error::new(kind, format!("{tool}: {} ({})", said.trim(), out.status)))
}

fn missing_or(tool: &str, cause: io::Error) -> Error {
    if cause.kind() != io::ErrorKind::NotFound {
        return Error::io(format!("run {tool}"), cause);
    }
    let package = match tool {
        "mkfs.ext4" | "mkfs.ext3" => "e2fsprogs",
        "mkfs.xfs" => "xfsprogs",
        "losetup" | "mount" | "umount" => "util-linux (or mount)",
        _ => tool,
    };
    Error::new(Kind::Unsupported, format!("{tool} is not installed; it comes with the package {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_to_do() {
        let missing = run("mkfs.of-no-such-kind", &[]).unwrap_err();
        assert_eq!(missing.kind(), Kind::Unsupported);
        assert!(missing.to_string().contains("not installed"));
        let failed = run("sh", &["-c".as_ref(), "echo it is busy >&2; exit 3".as_ref()]).unwrap_err();
        assert_eq!(failed.kind(), Kind::Busy);
        assert!(failed.to_string().contains("it is busy") && failed.to_string().contains('3'));
        assert_eq!(run("sh", &["-c".as_ref(), "echo fine".as_ref()]).unwrap(), "fine\n");
    }
}
