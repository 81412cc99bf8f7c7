//! Programs on crates that use `h2`, in `bench/peers/h2`: axum, tonic and reqwest, built with the published `h2` and with
//! `crates/h2` in its place, and otherwise the same versions of everything.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Keys;
use crate::error::Error;

/// The sources, which lie beside those of this program.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/h2");
/// What takes the place of the published crate.
const PATCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/h2");

/// Which `h2` a program is built with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum H2 {
    Published,
    Patched,
}

impl H2 {
    pub(crate) const BOTH: [H2; 2] = [H2::Published, H2::Patched];

    pub(crate) fn name(self) -> &'static str {
        match self {
            H2::Published => "published h2",
            H2::Patched => "crates/h2",
        }
    }

    /// The folder of its build, with a manifest and a lock file of its own.
    fn folder(self) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
        target.join("h2-programs").join(match self {
            H2::Published => "published",
            H2::Patched => "patched",
        })
    }

    fn program(self) -> PathBuf {
        self.folder().join("target/release/h2-programs")
    }

    /// One of its programs, with tokio's current thread, or so many workers.
    pub(crate) fn command(self, program: &str, workers: usize, keys: Option<&Keys>) -> Command {
        let mut command = Command::new(self.program());
        command.args([program, "--workers", &workers.to_string()]);
        if let Some(keys) = keys {
            command.arg("--cert").arg(&keys.cert).arg("--key").arg(&keys.key);
        }
        command
    }

    /// The versions that its lock file has of these packages.
    pub(crate) fn versions(self, packages: &[&str]) -> String {
        let lock = std::fs::read_to_string(self.folder().join("Cargo.lock")).unwrap_or_default();
        let version = |package: &str| {
            let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
            Some(format!("{package} {}", rest.split('"').next()?))
        };
        let versions: Vec<String> = packages.iter().filter_map(|package| version(package)).collect();
        versions.join(", ")
    }

    /// Builds its programs, with what the network has to offer. What is built already is left as it is.
    fn build(self) -> Result<(), Error> {
        let folder = self.folder();
        std::fs::create_dir_all(&folder).map_err(|error| Error::File(folder.clone(), error))?;
        copy(Path::new(SOURCES), &folder, "Cargo.lock")?;
        copy(Path::new(SOURCES), &folder, "Cargo.toml")?;
        let sources = folder.join("src");
        if !sources.exists() {
            let linked = std::os::unix::fs::symlink(Path::new(SOURCES).join("src"), &sources);
            linked.map_err(|error| Error::File(sources, error))?;
        }
        match self {
            H2::Published => {
                self.cargo(&["build", "--release", "--quiet", "--target-dir=target", "--locked"])
            }
            H2::Patched => {
                // The lock file holds the published one, and a patch alone does not replace what is locked.
                self.cargo(&["update", "--quiet", "--package=h2"])?;
                if self.versions(&["h2"]) == H2::Published.versions(&["h2"]) {
                    return Err(Error::Output("cargo update".to_owned(), self.versions(&["h2"])));
                }
                self.cargo(&["build", "--release", "--quiet", "--target-dir=target"])
            }
        }
    }

    fn cargo(self, arguments: &[&str]) -> Result<(), Error> {
        let mut command = Command::new("cargo");
        command.current_dir(self.folder()).args(arguments);
        if self == H2::Patched {
            command.args(["--config", &format!("patch.crates-io.h2.path=\"{PATCH}\"")]);
        }
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::Failed("cargo".to_owned(), status.to_string())),
            Err(error) => Err(Error::Start("cargo".to_owned(), error)),
        }
    }
}

/// Builds all programs, while there is a network to fetch what they need.
///
/// # Errors
/// When there is no cargo, or something cannot be fetched or compiled.
pub(crate) fn build() -> Result<(), Error> {
    H2::BOTH.into_iter().try_for_each(H2::build)
}

fn copy(from: &Path, to: &Path, name: &str) -> Result<(), Error> {
    let copied = std::fs::copy(from.join(name), to.join(name));
    copied
        .map(drop)
        .map_err(|error| Error::File(from.join(name), error))
}
