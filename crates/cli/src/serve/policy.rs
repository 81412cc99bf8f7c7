//! What options put around the files, or around an application: users, header fields, CORS and a path for health checks.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore::Incoming;
use fullbore::body::Chunk;
use fullbore::server::PeerAddr;
use fullbore_files::{Files, LogUser, Uploads, is_upload_resource};
use fullbore_proxy::Proxy;
use http::header::{AUTHORIZATION, CACHE_CONTROL, LOCATION};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, Cors};
use tower_service::Service;

use super::answer::{Answer, SiteFuture};
use super::auth::{Gate, Verdict};
use super::body::SiteBody;
use super::text::text;
use crate::args::{Origin, ResponseField, ServerArgs};
use crate::exit::Failure;

/// How long a browser may remember the answer to a preflight request. Browsers allow two hours at most.
const PREFLIGHT_AGE: Duration = Duration::from_secs(2 * 3600);

/// What the options of `serve` put around the files.
#[derive(Default)]
pub(super) struct Around<'a> {
    pub(super) cache_control: Option<&'a HeaderValue>,
    pub(super) cors: &'a [Origin],
    /// The path of the only file, percent-encoded.
    pub(super) only: Option<String>,
}

/// The options.
pub(super) struct Policy {
    gate: Option<Gate>,
    /// The path of the only file, percent-encoded.
    only: Option<String>,
    health: Option<String>,
    fields: Vec<ResponseField>,
    cache_control: Option<HeaderValue>,
    /// Whether the access log shows users.
    logs_users: bool,
}

impl Policy {
    /// `None` when no option needs one.
    ///
    /// # Errors
    /// A user is not in the form of `--auth`.
    pub(super) fn from_options(args: &ServerArgs, around: Around<'_>) -> Result<Option<Self>, Failure> {
        let off = !args.has_users()
            && args.header.is_empty()
            && args.health.is_none()
            && around.cache_control.is_none()
            && around.only.is_none()
            && around.cors.is_empty();
        if off {
            return Ok(None);
        }
        Ok(Some(Self {
            gate: Gate::from_options(args)?,
            health: args.health.clone(),
            fields: args.header.clone(),
            only: around.only,
            cache_control: around.cache_control.cloned(),
            logs_users: args.log,
        }))
    }

    /// The response to a path other than that of the only file: `/` leads to it.
    fn elsewhere(&self, asked: &str) -> Option<Response<Bytes>> {
        let only = self.only.as_deref().filter(|only| !is_one_path(asked, only))?;
        let mut response = match asked {
            "/" => text(StatusCode::TEMPORARY_REDIRECT, "this server has one file\n"),
            _ => text(
                StatusCode::NOT_FOUND,
                "this server has one file, to which / leads\n",
            ),
        };
        if let Some(value) = HeaderValue::from_str(only).ok().filter(|_| asked == "/") {
            response.headers_mut().insert(LOCATION, value);
        }
        Some(response)
    }

    /// Adds the fields to a response of the files.
    fn finish(&self, mut response: Response<SiteBody>) -> Response<SiteBody> {
        let status = response.status();
        let fields = response.headers_mut();
        if let Some(value) = &self.cache_control {
            use StatusCode as Status;
            if matches!(
                status,
                Status::OK | Status::PARTIAL_CONTENT | Status::NOT_MODIFIED
            ) {
                fields.entry(CACHE_CONTROL).or_insert_with(|| value.clone());
            }
        }
        self.add_fields(response)
    }

    /// Adds the fields of `--header`.
    fn add_fields(&self, mut response: Response<SiteBody>) -> Response<SiteBody> {
        let fields = response.headers_mut();
        for (index, field) in self.fields.iter().enumerate() {
            // The first one replaces what the file service says.
            if self.fields[..index]
                .iter()
                .any(|earlier| earlier.name == field.name)
            {
                fields.append(&field.name, field.value.clone());
            } else {
                fields.insert(&field.name, field.value.clone());
            }
        }
        response
    }
}

/// Whether two paths are one, however they are encoded.
fn is_one_path(one: &str, other: &str) -> bool {
    percent_decode_str(one).eq(percent_decode_str(other))
}

/// What a policy is around.
#[derive(Clone)]
pub(super) enum Content {
    Files(Files<Chunk>),
    Proxy(Proxy),
}

impl Content {
    fn call(&mut self, mut request: Request<Incoming>, is_gated: bool) -> SiteFuture {
        match self {
            Content::Files(files) => SiteFuture::Files(files.call(request)),
            Content::Proxy(proxy) => {
                if is_gated {
                    // The passwords are this server's.
                    request.headers_mut().remove(AUTHORIZATION);
                }
                SiteFuture::Proxy(proxy.call(request))
            }
        }
    }
}

/// The files, or an application, with a policy around them.
#[derive(Clone)]
pub(super) struct Guarded {
    content: Content,
    policy: Arc<Policy>,
}

impl Guarded {
    pub(super) fn new(content: Content, policy: Policy) -> Self {
        Self {
            content,
            policy: Arc::new(policy),
        }
    }

    /// Lets scripts of these origins read the responses.
    pub(super) fn sharing(self, origins: &[Origin], uploads: &Uploads) -> Cors<Self> {
        let origin = match origins.iter().any(|origin| matches!(origin, Origin::Any)) {
            true => AllowOrigin::any(),
            false => AllowOrigin::list(origins.iter().filter_map(|origin| match origin {
                Origin::Only(value) => Some(value.clone()),
                Origin::Any => None,
            })),
        };
        let mut methods = vec![Method::GET, Method::HEAD];
        if *uploads != Uploads::Refuse {
            methods.extend([Method::PUT, Method::POST]);
        }
        if matches!(uploads, Uploads::Directory(_)) {
            // Of unfinished uploads.
            methods.extend([Method::PATCH, Method::DELETE]);
        }
        Cors::new(self)
            .allow_origin(origin)
            .allow_methods(methods)
            // A wildcard would not stand for `authorization`.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(Any)
            .max_age(PREFLIGHT_AGE)
    }

    /// The response of what is served, to a request of this user.
    fn pass(&mut self, mut request: Request<Incoming>, user: Option<Arc<str>>) -> Answer {
        let policy = Arc::clone(&self.policy);
        if let (Some(gate), Some(user)) = (&policy.gate, &user) {
            if let Some(refusal) = gate.refusal(user, request.method()) {
                return self.refuse(refusal);
            }
        }
        if let Some(response) = policy.elsewhere(request.uri().path()) {
            return self.refuse(response);
        }
        if let Some(user) = &user {
            // An upload is continued by the user who began it.
            request.extensions_mut().insert(LogUser(Arc::clone(user)));
        }
        let answer = self.content.call(request, policy.gate.is_some());
        Box::pin(async move {
            let Ok(response) = answer.await;
            let mut response = policy.finish(response);
            if let Some(user) = user.filter(|_| policy.logs_users) {
                response.extensions_mut().insert(LogUser(user));
            }
            Ok(response)
        })
    }

    fn refuse(&self, response: Response<Bytes>) -> Answer {
        let response = self.policy.finish(response.map(SiteBody::of_text));
        Box::pin(std::future::ready(Ok(response)))
    }
}

impl Service<Request<Incoming>> for Guarded {
    type Response = Response<SiteBody>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Answer {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if reads && self.policy.health.as_deref() == Some(request.uri().path()) {
            let response = text(StatusCode::OK, "ok\n").map(SiteBody::of_text);
            return Box::pin(std::future::ready(Ok(self.policy.add_fields(response))));
        }
        let gate = self.policy.gate.as_ref();
        // An unfinished upload is its user's: a client that sends no password unless it is asked for one has to be asked.
        let is_of_upload = request.uri().query().is_some_and(is_upload_resource);
        let method = if is_of_upload {
            &Method::PATCH
        } else {
            request.method()
        };
        let credentials = match gate.map(|gate| gate.look(method, request.headers())) {
            None | Some(Verdict::Open) => return self.pass(request, None),
            Some(Verdict::Admitted(user)) => return self.pass(request, Some(user)),
            Some(Verdict::Refused(response)) => return self.refuse(response),
            Some(Verdict::Unknown(credentials)) => credentials,
        };
        // The file service cannot ask for it later.
        let peer = request.extensions().get().copied().or_else(PeerAddr::current);
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let mut this = self.clone();
        Box::pin(async move {
            let verified = match &this.policy.gate {
                Some(gate) => gate.verify(credentials, peer).await.map(Some),
                None => Ok(None),
            };
            match verified {
                Ok(user) => this.pass(request, user).await,
                Err(refusal) => this.refuse(*refusal).await,
            }
        })
    }
}
