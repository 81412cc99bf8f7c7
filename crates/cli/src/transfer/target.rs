//! Where a body goes: standard output, a file that is named, a file named after its URL, or nowhere.
//!
//! Checks what can be checked before a request is sent, and makes a URL's last segment a name that stays in its
//! folder. It opens nothing: `sink` writes.

use std::io;
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

/// Where one body goes.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// Count it only.
    Discard,
    /// Standard output; `asked` tells that the user named it, and wants even binary data on a terminal.
    Stdout { asked: bool },
    /// Something that is no regular file, such as a FIFO or /dev/null: written in place.
    Device(PathBuf),
    /// A file that appears under this name once it is complete.
    File { path: PathBuf, force: bool },
}

impl Target {
    /// A target for `-o PATH`; refuses a file that exists unless `force`.
    pub(crate) async fn named(path: &Path, force: bool) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::Stdout { asked: true });
        }
        let link = match tokio::fs::symlink_metadata(path).await {
            Ok(found) if found.is_symlink() => {
                refuse_foreign_link(path, &found)?;
                true
            }
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::File {
                    path: path.to_owned(),
                    force,
                });
            }
            Err(error) => return Err(Failure::from_io("look at", path, &error)),
        };
        let found = tokio::fs::metadata(path).await.ok();
        if found.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Err(Failure::new(
                Exit::Exists,
                format!("{} is a folder; to write into it use --dir", path.display()),
            ));
        }
        if found.is_some_and(|found| !found.is_file()) {
            return Ok(Self::Device(path.to_owned()));
        }
        if !force {
            return Err(Failure::exists(path));
        }
        // Replacing a link itself would leave the file that it names as it was.
        let path = if link {
            tokio::fs::canonicalize(path)
                .await
                .map_err(|error| Failure::from_io("follow", path, &error))?
        } else {
            path.to_owned()
        };
        Ok(Self::File { path, force })
    }

    /// The file's path, if it is to be one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Discard | Self::Stdout { .. } => None,
            Self::Device(path) | Self::File { path, .. } => Some(path),
        }
    }
}

/// A link of another user's, in a folder that several write to, may lead to any file of this user's. The kernel has the
/// same rule (`fs.protected_symlinks`), but not for a link whose end is looked up first.
#[cfg(unix)]
fn refuse_foreign_link(path: &Path, link: &std::fs::Metadata) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    if [0, super::private::user()].contains(&link.uid()) {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Exists,
        format!(
            "{} is a link of another user; name the file itself",
            path.display()
        ),
    ))
}

#[cfg(not(unix))]
fn refuse_foreign_link(_: &Path, _: &std::fs::Metadata) -> Result<(), Failure> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_and_a_file_have_a_path() {
        let file = Target::File {
            path: "a".into(),
            force: false,
        };
        assert_eq!(file.path(), Some(Path::new("a")));
        assert_eq!(Target::Device("b".into()).path(), Some(Path::new("b")));
        assert_eq!(Target::Discard.path(), None);
        assert_eq!(Target::Stdout { asked: true }.path(), None);
    }
}
