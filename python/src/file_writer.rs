//! Writes the pieces of a body into a file, on blocking threads: one batch is written while the next one arrives.

use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

/// What is gathered before it is written.
const BATCH: usize = 1 << 20;

/// The slices of one system call: Linux takes 1,024.
const SLICES: usize = 1024;

pub(crate) struct FileWriter {
    file: Arc<File>,
    held: Vec<Bytes>,
    held_bytes: usize,
    /// The batch before.
    writing: Option<JoinHandle<io::Result<()>>>,
}

impl FileWriter {
    /// Writes at the position of the file.
    pub(crate) fn new(file: File) -> Self {
        FileWriter {
            file: Arc::new(file),
            held: Vec::new(),
            held_bytes: 0,
            writing: None,
        }
    }

    /// # Errors
    /// What was written before could not be stored.
    pub(crate) async fn write(&mut self, data: Bytes) -> io::Result<()> {
        self.held_bytes += data.len();
        self.held.push(data);
        if self.held_bytes < BATCH {
            return Ok(());
        }
        self.written().await?;
        self.start();
        Ok(())
    }

    /// # Errors
    /// Something could not be stored.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        self.written().await?;
        self.start();
        self.written().await
    }

    /// Starts again from an empty file.
    pub(crate) async fn restart(&mut self) -> io::Result<()> {
        self.held.clear();
        self.held_bytes = 0;
        self.written().await?;
        let file = Arc::clone(&self.file);
        blocking(move || {
            file.set_len(0)?;
            (&*file).seek(SeekFrom::Start(0)).map(drop)
        })
        .await
    }

    /// The file, once all of it is written.
    pub(crate) fn into_file(self) -> Arc<File> {
        self.file
    }

    fn start(&mut self) {
        let (file, held) = (Arc::clone(&self.file), std::mem::take(&mut self.held));
        self.held_bytes = 0;
        if !held.is_empty() {
            self.writing = Some(spawn_blocking(move || write_all(&file, &held)));
        }
    }

    /// Waits for the batch before.
    async fn written(&mut self) -> io::Result<()> {
        // It stays here until it has ended: a wait that is canceled does not lose it.
        if let Some(writing) = &mut self.writing {
            let written = writing.await;
            self.writing = None;
            written.map_err(io::Error::other)??;
        }
        Ok(())
    }
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

fn write_all(mut file: &File, chunks: &[Bytes]) -> io::Result<()> {
    for chunks in chunks.chunks(SLICES) {
        let mut slices: Vec<IoSlice<'_>> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
        let mut rest = &mut slices[..];
        while rest.iter().any(|slice| !slice.is_empty()) {
            match file.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
