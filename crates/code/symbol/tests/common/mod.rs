#[path = "../../../../../tests/support/skipped.rs"]
mod skipped;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use skipped::skipped;
use tiptoe_symbol::{Content, DebugSource, Image};

pub struct Disk {
    path: PathBuf,
}

impl Disk {
    pub fn of(path: impl AsRef<Path>) -> Disk {
        Disk {
            path: path
                .as_ref()
                .canonicalize()
                .unwrap_or_else(|_| path.as_ref().into()),
        }
    }
}

impl DebugSource for Disk {
    fn image_path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn read(&self, path: &Path) -> Option<Content> {
        Some(std::fs::read(path).ok()?.into())
    }
}

pub fn image(path: impl AsRef<Path>) -> Option<Image> {
    let path = path.as_ref();
    let Ok(bytes) = std::fs::read(path) else {
        skipped(&path.display().to_string(), "it is not there");
        return None;
    };
    let parsed = Image::parse(&bytes.into(), &Disk::of(path));
    Some(parsed.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

pub fn tool(name: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(name).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            skipped(&format!("{name} {arguments:?}"), &message);
            None
        }
        Err(error) => {
            skipped(name, &error.to_string());
            None
        }
    }
}
