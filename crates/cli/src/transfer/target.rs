//! Where a body goes: standard output, a file, a device, or nowhere.
//!
//! This checks the path before a request is sent, and opens nothing.

use std::io;
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

use super::private;

/// Where one body goes.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The body is counted and dropped.
    Discard,
    /// Standard output. `asked`: the user named it, so binary data may go to a terminal.
    Stdout { asked: bool },
    /// Not a regular file, such as a FIFO or /dev/null: written in place.
    Device(PathBuf),
    /// A file that gets this name when it is complete.
    File { path: PathBuf, force: bool },
    /// A file that another program has begun: the rest is appended to it.
    Continued(PathBuf),
}

impl Target {
    /// A target for `-o PATH`; refuses a file that exists unless `force`.
    pub(crate) async fn named(path: &Path, force: bool) -> Result<Self, Failure> {
        if is_stdout(path) {
            return Ok(Self::Stdout { asked: true });
        }
        let link = match tokio::fs::symlink_metadata(path).await {
            Ok(found) if found.is_symlink() => {
                refuse_foreign_link(path, &found)?;
                true
            }
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if names_a_folder(path) {
                    return Err(Failure::usage(format!(
                        "{} is the path of a folder, which does not exist; use --dir to save files in it, or leave out what \
                         follows the name",
                        path.display()
                    )));
                }
                return Ok(Self::File {
                    path: path.to_owned(),
                    force,
                });
            }
            Err(error) => return Err(Failure::from_io("access", path, &error)),
        };
        let found = tokio::fs::metadata(path).await.ok();
        if found.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Err(Failure::new(
                Exit::Exists,
                format!("{} is a folder; use --dir to save files in it", path.display()),
            ));
        }
        if found.is_some_and(|found| !found.is_file()) {
            return Ok(Self::Device(path.to_owned()));
        }
        if !force {
            return Err(Failure::exists(path));
        }
        // Replacing the link itself would leave its target unchanged.
        let path = if link {
            tokio::fs::canonicalize(path)
                .await
                .map_err(|error| Failure::from_io("follow", path, &error))?
        } else {
            path.to_owned()
        };
        Ok(Self::File { path, force })
    }

    /// The path of the file or device.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Discard | Self::Stdout { .. } => None,
            Self::Device(path) | Self::Continued(path) | Self::File { path, .. } => Some(path),
        }
    }
}

/// Whether a path is standard output. Opened by its name, a file that standard output was redirected to would be an existing
/// one, and `--json` would print into the body.
pub(crate) fn is_stdout(path: &Path) -> bool {
    let devices = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    path == Path::new("-") || cfg!(unix) && devices.iter().any(|device| path == Path::new(device))
}

/// Whether two paths name one regular file, or would: by links, hard links and other spellings too. Runs on a blocking
/// thread.
pub(crate) fn are_one_file(one: &Path, other: &Path) -> bool {
    let found = |path| std::fs::metadata(path).ok();
    if let (Some(one), Some(other)) = (found(one), found(other)) {
        if let Some(same) = private::are_same(&one, &other) {
            return same && one.is_file();
        }
    }
    match (place(one), place(other)) {
        // A device is no file, and takes several bodies.
        (Some(one), Some(other)) => one == other && found(&one).is_none_or(|found| found.is_file()),
        _ => false,
    }
}

/// Where a file is, or would be.
fn place(path: &Path) -> Option<PathBuf> {
    if let Ok(place) = path.canonicalize() {
        return Some(place);
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}

/// Whether a path does not end with a name, but with a slash or dots: no file could get it.
fn names_a_folder(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    path.file_name()
        .is_none_or(|name| !text.ends_with(name.as_encoded_bytes()))
}

/// A link of another user in a shared folder may lead to any file of this user. The kernel has the same rule
/// (`fs.protected_symlinks`), but not for a link that is resolved first.
#[cfg(unix)]
fn refuse_foreign_link(path: &Path, link: &std::fs::Metadata) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    if [0, super::private::user()].contains(&link.uid()) {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Exists,
        format!(
            "{} is a symbolic link of another user; give the path of the file itself",
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

    #[test]
    fn one_file_is_known_by_each_of_its_paths() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("d"))?;
        std::fs::write(path("there"), "")?;
        let mut cases = vec![
            ("new", "new", true),
            ("new", "./new", true),
            ("new", "d/../new", true),
            ("new", "d/new", false),
            ("new", "other", false),
            ("there", "d/../there", true),
            ("there", "new", false),
            ("none/new", "none/new", false),
        ];
        #[cfg(unix)]
        {
            std::fs::hard_link(path("there"), path("hard"))?;
            std::os::unix::fs::symlink("there", path("soft"))?;
            std::os::unix::fs::symlink("d", path("folder"))?;
            cases.extend([
                ("there", "hard", true),
                ("there", "soft", true),
                ("d/new", "folder/new", true),
                ("/dev/null", "/dev/null", false),
            ]);
        }
        for (one, other, expected) in cases {
            assert_eq!(are_one_file(&path(one), &path(other)), expected, "{one} {other}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_path_that_no_file_can_have_is_refused_before_the_download() {
        let folder = tempfile::tempdir().unwrap();
        for (name, is_refused) in [
            ("a", false),
            (".a", false),
            ("a..", false),
            ("a/", true),
            ("a/.", true),
            ("b/a/..", true),
        ] {
            let target = Target::named(&folder.path().join(name), false).await;
            let exit = target.err().map(|failure| failure.exit);
            assert_eq!(exit, is_refused.then_some(Exit::Usage), "{name}");
        }
    }
}
