//! HTTP clients in Java, built by Maven from `bench/peers/java`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::context::Context;
use crate::error::Error;
use crate::process;

/// The sources, which lie beside those of this program.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/java");
/// Maven may have to fetch what it needs first.
const BUILD: Duration = Duration::from_secs(300);

/// One of the clients.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Client {
    Jdk,
    OkHttp,
    Ahc,
}

impl Client {
    pub(crate) const ALL: [Client; 3] = [Client::Jdk, Client::OkHttp, Client::Ahc];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Client::Jdk => "HttpClient (JDK)",
            Client::OkHttp => "OkHttp",
            Client::Ahc => "AsyncHttpClient",
        }
    }

    /// Whether it is measured over TLS, since in the clear it knows no prior knowledge.
    pub(crate) fn secure(self) -> bool {
        self == Client::Jdk
    }

    /// Whether its window is 16 MiB and nothing else.
    pub(crate) fn window_is_fixed(self) -> bool {
        self == Client::OkHttp
    }

    fn argument(self) -> &'static str {
        match self {
            Client::Jdk => "jdk",
            Client::OkHttp => "okhttp",
            Client::Ahc => "ahc",
        }
    }
}

/// Has Maven fetch all that a build needs, by one that is thrown away, while there is a network to fetch it from. Where that
/// fails, [`Java::build`] will say why.
pub(crate) fn fetch() {
    let folder = std::env::temp_dir().join(format!("fullbore-bench-java-{}", std::process::id()));
    let _ = maven(&folder).output();
    let _ = std::fs::remove_dir_all(folder);
}

/// The build into a folder.
fn maven(folder: &Path) -> Command {
    let mut command = Command::new("mvn");
    command
        .args(["-q", "-B", "-f"])
        .arg(Path::new(SOURCES).join("pom.xml"))
        .arg(format!("-Dbuild={}", folder.display()))
        .arg("package");
    command
}

/// The program in Java, built.
pub(crate) struct Java {
    folder: PathBuf,
}

impl Java {
    /// Compiles it into the run's folder.
    ///
    /// # Errors
    /// When there is no Maven or Java, or what it needs cannot be fetched.
    pub(crate) fn build(cx: &Context) -> Result<Self, Error> {
        let folder = cx.folder("java")?;
        process::run(&cx.reaper, &mut maven(&folder), cx.limit(BUILD)?)?;
        Ok(Self { folder })
    }

    /// The command of a client; what follows are the arguments of the load.
    pub(crate) fn command(&self, client: Client) -> Command {
        let mut command = Command::new("java");
        let (classes, jars) = (self.folder.join("classes"), self.folder.join("jars"));
        command
            .args(["-Xmx512m", "-cp"])
            .arg(format!("{}:{}/*", classes.display(), jars.display()))
            .args(["Load", client.argument()]);
        command
    }

    /// The libraries as they were fetched.
    pub(crate) fn versions(&self) -> String {
        let entries = std::fs::read_dir(self.folder.join("jars"))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".jar")?.to_owned()))
            .filter(|name| {
                ["okhttp-", "async-http-client-"]
                    .iter()
                    .any(|one| name.starts_with(one))
            })
            .collect();
        names.sort();
        format!("In Java: {}.", names.join(", "))
    }
}
