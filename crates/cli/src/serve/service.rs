//! The HTTP service of `serve`: files, uploads and the access log.

use std::io;
use std::path::Path;

use fullbore::Chunk;
use fullbore_files::{Files, FolderError, Log, LogLimits, LogWriter, Settings, Uploads};

use crate::args::ServeArgs;
use crate::exit::{Exit, Failure};
use crate::run;

/// The most uploads stored at once by default: their batches stay within the 64 MiB of [`Settings::all_batches_bytes`].
const MOST_UPLOADS: usize = 4096;

/// The HTTP service: files, uploads and the access log.
pub(super) fn service(args: &ServeArgs) -> Result<Log<Files<Chunk>>, Failure> {
    let uploads = match &args.uploads {
        None => Uploads::Refuse,
        Some(word) if word == Path::new("discard") => Uploads::Discard,
        Some(dir) => Uploads::Directory(dir.clone()),
    };
    let mut settings = Settings {
        uploads,
        overwrite: args.overwrite,
        listing: !args.no_listing,
        error_page: error_page(args)?,
        spa: args.spa,
        precompressed: args.precompressed,
        compress: args.compress,
        max_upload_bytes: args.max_upload,
        min_free_bytes: args.min_free,
        hidden: args.hidden,
        ..Settings::default()
    };
    // The other half of the descriptors is for connections.
    if let Some(descriptors) = run::raise_descriptor_limit() {
        settings.open_files = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
        settings.max_uploads = (settings.open_files / 2).clamp(1, MOST_UPLOADS);
    }
    if let Some(uploads) = args.parallel_uploads {
        settings.max_uploads = usize::try_from(uploads).unwrap_or(usize::MAX);
        if settings.max_uploads > settings.open_files {
            return Err(Failure::usage(format!(
                "--parallel-uploads {uploads} exceeds the {} files that this process may hold open, half of its file \
                 descriptors; raise the limit with ulimit -n",
                settings.open_files
            )));
        }
    }
    let files = Files::open_with_ranges(&args.root, settings).map_err(|error| cannot_open(args, &error))?;
    let writer = if args.log {
        let mut limits = LogLimits::default();
        if let Some(bytes) = args.log_buffer {
            limits.waiting_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        let writer = LogWriter::stdout(limits)
            .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
        Some(writer)
    } else {
        None
    };
    Ok(Log::new(files, writer))
}

/// The page for 404, which must be there at the start: its name may be mistyped.
fn error_page(args: &ServeArgs) -> Result<Option<String>, Failure> {
    let Some(page) = &args.error_page else {
        return Ok(None);
    };
    if !args.root.join(page).is_file() || Path::new(page).is_absolute() {
        let root = args.root.display();
        return Err(Failure::usage(format!(
            "--error-page {page}: there is no such file below {root}; give a path relative to this folder, such as 404.html"
        )));
    }
    Ok(Some(page.clone()))
}

/// A folder cannot be opened. One for uploads is not made: its name may be mistyped.
fn cannot_open(args: &ServeArgs, error: &FolderError) -> Failure {
    let mut failure = Failure::from_io("open the folder", error.path(), error.io_error());
    let is_for_uploads = args.uploads.as_deref() == Some(error.path());
    if is_for_uploads && error.io_error().kind() == io::ErrorKind::NotFound {
        let path = error.path().display();
        failure.message = format!("--uploads {path}: there is no such folder; make it with: mkdir -p {path}");
    }
    failure
}
