//! The responses that end an upload early. Called by `uploads`, `form` and `body_length`.

use std::io;

use http::StatusCode;

use crate::destination::BadDestination;
use crate::file_body::FileResponse;
use crate::resolve::BadPath;
use crate::respond;
use crate::writer::Failure;

/// A response that ends an upload; its text is one line.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// What happened, and what to do.
    pub(crate) line: String,
}

impl Refusal {
    /// The response as text.
    pub(crate) fn into_response(self) -> FileResponse {
        respond::text(self.status, &self.line)
    }
}

pub(crate) fn refuse(status: StatusCode, line: &str) -> Refusal {
    Refusal {
        status,
        line: line.to_owned(),
    }
}

pub(crate) fn conflict(line: &str) -> Refusal {
    refuse(StatusCode::CONFLICT, line)
}

pub(crate) fn bad_path(error: BadPath) -> Refusal {
    let line = match error {
        BadPath::TooLong => "the name is too long",
        BadPath::Malformed => "the path is malformed",
    };
    refuse(StatusCode::BAD_REQUEST, line)
}

pub(crate) fn bad_destination(error: BadDestination, max_folders: usize) -> Refusal {
    match error {
        BadDestination::Name => refuse(
            StatusCode::BAD_REQUEST,
            "a name in this path is not allowed: it begins with a dot, is too long, or has a separator or control \
             character",
        ),
        BadDestination::TooDeep => refuse(
            StatusCode::BAD_REQUEST,
            &format!("the path has more than {max_folders} folders"),
        ),
    }
}

pub(crate) fn name_taken() -> Refusal {
    conflict("a file of this name exists; it is kept: use another name")
}

pub(crate) fn name_reserved() -> Refusal {
    conflict(
        "a file of this name would change what another path answers, and uploads replace nothing here: use another name",
    )
}

pub(crate) fn precondition_failed() -> Refusal {
    refuse(
        StatusCode::PRECONDITION_FAILED,
        "the file is not in the state that the request demands",
    )
}

pub(crate) fn is_a_folder() -> Refusal {
    conflict("this name is a folder: add a slash and the name of the file")
}

/// The response for an upload that was not stored.
pub(crate) fn failure(failure: &Failure) -> Refusal {
    match failure {
        Failure::Busy => busy(),
        Failure::Io(error) => io_failure(error),
        Failure::Changed => precondition_failed(),
        Failure::Reserved => name_reserved(),
        Failure::Refused(status, line) => refuse(*status, line),
        Failure::Lost => not_stored(),
    }
}

/// The response for an error of the file system.
pub(crate) fn io_failure(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull
        | io::ErrorKind::QuotaExceeded
        | io::ErrorKind::FileTooLarge
        | io::ErrorKind::WriteZero => refuse(
            StatusCode::INSUFFICIENT_STORAGE,
            "the server has not enough disk space for the upload",
        ),
        // Another request took the name while the body arrived.
        io::ErrorKind::AlreadyExists => name_taken(),
        io::ErrorKind::IsADirectory => is_a_folder(),
        io::ErrorKind::NotADirectory => conflict("a part of this path is a file, not a folder"),
        io::ErrorKind::PermissionDenied => refuse(
            StatusCode::FORBIDDEN,
            "the server may not write to this folder, or the folder is a link that leads out of those for uploads",
        ),
        io::ErrorKind::WouldBlock => locked(),
        _ if is_short_of_descriptors(error) => busy(),
        _ => not_stored(),
    }
}

/// Whether the process or the system has no descriptor left.
#[cfg(unix)]
fn is_short_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(not(unix))]
fn is_short_of_descriptors(_: &io::Error) -> bool {
    false
}

pub(crate) fn busy() -> Refusal {
    refuse(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many uploads are in progress; try again later",
    )
}

/// Another process that serves the same folder writes the same upload. It does not learn of this request.
fn locked() -> Refusal {
    refuse(
        StatusCode::LOCKED,
        "another process of the server still receives this upload: try again when that request has ended",
    )
}

pub(crate) fn not_stored() -> Refusal {
    refuse(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the upload could not be stored",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_disk_says_becomes_a_status() {
        use io::ErrorKind;
        for (kind, expected) in [
            (ErrorKind::StorageFull, 507),
            (ErrorKind::QuotaExceeded, 507),
            (ErrorKind::FileTooLarge, 507),
            (ErrorKind::AlreadyExists, 409),
            (ErrorKind::IsADirectory, 409),
            (ErrorKind::NotADirectory, 409),
            (ErrorKind::PermissionDenied, 403),
            (ErrorKind::WouldBlock, 423),
            (ErrorKind::Other, 500),
        ] {
            let status = io_failure(&kind.into()).status;
            assert_eq!(status.as_u16(), expected, "{kind:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_disk_that_is_full_is_507_and_a_lack_of_descriptors_is_503() {
        use rustix::io::Errno;
        for (errno, expected) in [
            (Errno::NOSPC, 507),
            (Errno::DQUOT, 507),
            (Errno::FBIG, 507),
            (Errno::MFILE, 503),
            (Errno::NFILE, 503),
            (Errno::IO, 500),
        ] {
            let refused = io_failure(&errno.into());
            assert_eq!(refused.status.as_u16(), expected, "{errno:?}");
        }
    }
}
