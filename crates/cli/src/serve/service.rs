//! The HTTP services of `serve` and `proxy`, from their options: files, uploads, an application and the access log.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_files::{Files, FolderError, Log, LogLimits, LogWriter, Settings, Uploads};
use fullbore_proxy::Proxy;
use ipnet::IpNet;

use super::behind::Behind;
use super::metrics::Metrics;
use super::policy::{Around, Content, Guarded, Policy};
use super::site::Site;
use crate::args::{FileArgs, OriginArgs, ServerArgs};
use crate::exit::{Exit, Failure};
use crate::put::IN_PATH;
use crate::run;

/// The most uploads stored at once by default: their batches of 8 KiB stay within the 64 MiB of all batches.
const MOST_UPLOADS: usize = 4096;

/// What the listeners serve.
pub(super) struct Sites {
    files: Site,
    writer: Option<LogWriter>,
    /// The proxies in front of the files.
    trusted: Option<Arc<[IpNet]>>,
    /// The path of the only file.
    only: Option<String>,
}

impl Sites {
    /// The files, counted in `metrics`.
    ///
    /// # Errors
    /// A folder cannot be used, or an option contradicts another.
    pub(super) fn of_files(
        files: &FileArgs,
        server: &ServerArgs,
        metrics: Option<&Arc<Metrics>>,
    ) -> Result<Self, Failure> {
        let mut settings = settings(files)?;
        let uploads = settings.uploads.clone();
        let only = OnlyFile::of(files)?;
        let root = match &only {
            Some(only) => {
                settings.listing = false;
                only.folder.as_path()
            }
            None => files.root.as_path(),
        };
        let opened = Files::open_with_ranges(root, settings);
        let opened = opened.map_err(|error| cannot_open(files, &error))?;
        let around = Around {
            cache_control: files.cache_control.as_ref(),
            cors: &files.cors,
            only: only.as_ref().map(|only| only.path.clone()),
        };
        let site = match Policy::from_options(server, around)? {
            None => Site::Files(opened),
            Some(policy) => {
                let guarded = Guarded::new(Content::Files(opened), policy);
                match files.cors.as_slice() {
                    [] => Site::Guarded(guarded),
                    origins => Site::Shared(Arc::new(guarded.sharing(origins, &uploads))),
                }
            }
        };
        let mut sites = Self::new(site, server, metrics)?;
        sites.only = only.map(|only| only.path);
        sites.trusted = (!files.trusted_proxy.is_empty()).then(|| files.trusted_proxy.as_slice().into());
        Ok(sites)
    }

    /// The application, counted in `metrics`.
    ///
    /// # Errors
    /// An option is invalid.
    pub(super) fn of_proxy(
        proxy: Proxy,
        server: &ServerArgs,
        metrics: Option<&Arc<Metrics>>,
    ) -> Result<Self, Failure> {
        if let Some(metrics) = metrics {
            metrics.watch(proxy.clone());
        }
        let site = match Policy::from_options(server, Around::default())? {
            None => Site::Proxy(proxy),
            Some(policy) => Site::Guarded(Guarded::new(Content::Proxy(proxy), policy)),
        };
        Self::new(site, server, metrics)
    }

    fn new(site: Site, server: &ServerArgs, metrics: Option<&Arc<Metrics>>) -> Result<Self, Failure> {
        Ok(Self {
            files: match metrics {
                Some(metrics) => Site::Counted(Arc::new(site), Arc::clone(metrics)),
                None => site,
            },
            writer: log_writer(server)?,
            trusted: None,
            only: None,
        })
    }

    /// The path for people: of the only file, or `/`.
    pub(super) fn path(&self) -> &str {
        self.only.as_deref().unwrap_or("/")
    }

    /// The files, or the application.
    pub(super) fn files(&self) -> Behind {
        self.logged(self.files.clone())
    }

    /// The log, if there is one.
    pub(super) fn log(&self) -> Option<LogWriter> {
        self.writer.clone()
    }

    /// A service whose requests go to the same log.
    pub(super) fn logged(&self, site: Site) -> Behind {
        Behind::new(Log::new(site, self.writer.clone()), self.trusted.clone())
    }
}

/// A file that is served alone.
struct OnlyFile {
    folder: PathBuf,
    /// The path of its URL.
    path: String,
}

impl OnlyFile {
    /// `None` when the options name a folder.
    ///
    /// # Errors
    /// An option speaks of a folder, or no URL can have the name.
    fn of(files: &FileArgs) -> Result<Option<Self>, Failure> {
        let root = &files.root;
        if !root.is_file() {
            return Ok(None);
        }
        let shown = root.display();
        let of_folders = [
            ("--uploads", files.uploads.is_some()),
            ("--spa", files.spa),
            ("--error-page", files.error_page.is_some()),
        ];
        if let Some((option, _)) = of_folders.iter().find(|option| option.1) {
            return Err(Failure::usage(format!(
                "{shown} is a file, and {option} needs a folder; name its folder"
            )));
        }
        let Some(name) = root.file_name().and_then(OsStr::to_str) else {
            return Err(Failure::usage(format!(
                "{shown}: no URL can have this name, which is not UTF-8; serve the file under another one"
            )));
        };
        if name.starts_with('.') && !files.hidden {
            return Err(Failure::usage(format!(
                "{shown}: its name begins with a dot; add --hidden to serve it"
            )));
        }
        let folder = match root.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let path = format!("/{}", percent_encoding::utf8_percent_encode(name, IN_PATH));
        Ok(Some(Self {
            folder: folder.to_owned(),
            path,
        }))
    }
}

/// The settings of the file service.
fn settings(args: &FileArgs) -> Result<Settings, Failure> {
    let uploads = match &args.uploads {
        None => Uploads::Refuse,
        Some(word) if word == Path::new("discard") => Uploads::Discard,
        Some(dir) => Uploads::Directory(dir.clone()),
    };
    let mut settings = Settings::default();
    settings.uploads = uploads;
    settings.overwrite = args.overwrite;
    settings.listing = !args.no_listing;
    settings.error_page = error_page(args)?;
    settings.spa = args.spa;
    settings.precompressed = args.precompressed;
    settings.compress = args.compress;
    settings.max_upload_bytes = args.max_upload;
    settings.min_free_bytes = args.min_free;
    settings.hidden = args.hidden;
    // The other half of the descriptors is for connections.
    if let Some(descriptors) = run::raise_descriptor_limit() {
        run::make_room_for_descriptors(descriptors);
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
    Ok(settings)
}

/// The proxy that the options ask for. Failures are told on standard error.
///
/// # Errors
/// The URL of an origin is invalid.
pub(super) fn proxy(origin: &OriginArgs, https: bool) -> Result<Proxy, Failure> {
    let mut builder = Proxy::builder().to(&origin.origin).https(https);
    for instance in &origin.to {
        builder = builder.to(instance);
    }
    for network in &origin.trusted_proxy {
        builder = builder.trusted_proxy(*network);
    }
    if let Some(host) = &origin.origin_host {
        builder = builder.origin_host(host.clone());
    }
    let limit = Some(origin.origin_timeout).filter(|limit| !limit.is_zero());
    let builder = builder.client(|client| {
        client
            .connect_timeout(origin.origin_connect_timeout)
            .response_timeout(limit)
            .pool_idle_timeout(origin.origin_keepalive_timeout)
            .max_connections(origin.origin_connections)
            .max_idle_http1_connections(origin.origin_connections)
            .max_waiting_requests(Some(origin.origin_queue))
    });
    let builder = builder.on_failure(|failure| run::complain(failure));
    let builder = builder.on_instance(|change| run::complain(change));
    builder.build().map_err(|error| Failure::usage(error.to_string()))
}

fn log_writer(args: &ServerArgs) -> Result<Option<LogWriter>, Failure> {
    if !args.log {
        return Ok(None);
    }
    let writer = LogWriter::stdout(LogLimits::default())
        .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
    Ok(Some(writer.format(args.log_format)))
}

/// The page for 404, which must be there at the start: its name may be mistyped.
fn error_page(args: &FileArgs) -> Result<Option<String>, Failure> {
    let Some(page) = &args.error_page else {
        return Ok(None);
    };
    let path = args.root.join(page);
    // As for every file: a link or `..` may not lead out.
    let below = || Ok::<_, io::Error>(path.canonicalize()?.starts_with(args.root.canonicalize()?));
    if !path.is_file() || Path::new(page).is_absolute() || !below().unwrap_or(false) {
        let root = args.root.display();
        return Err(Failure::usage(format!(
            "--error-page {page}: there is no such file below {root}; give a path relative to this folder, such as 404.html"
        )));
    }
    Ok(Some(page.clone()))
}

/// A folder cannot be opened. One for uploads is not made: its name may be mistyped.
fn cannot_open(args: &FileArgs, error: &FolderError) -> Failure {
    let mut failure = Failure::from_io("open the folder", error.path(), error.io_error());
    let is_it = |path: &&Path| std::path::absolute(path).is_ok_and(|path| path == error.path());
    let for_uploads = args.uploads.as_deref().filter(is_it);
    if let (Some(path), io::ErrorKind::NotFound) = (for_uploads, error.io_error().kind()) {
        let path = path.display();
        failure.message = format!("--uploads {path}: there is no such folder; make it with: mkdir -p {path}");
    }
    failure
}
