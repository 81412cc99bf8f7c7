//! What the soak's servers on the library answer: bodies of the pattern, whole, slow and broken, uploads that are checked,
//! given up or not looked at, and echoes. `soak` serves it in its own process, the part `soak-server` in another.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use fullbore::{BoxError, Incoming};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::time::sleep;

use super::pattern::{Check, Manner, Pieces};

type Reply = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// `/bytes/SALT/LENGTH`, `/unsized/SALT/LENGTH`, `/slow/SALT/LENGTH`, `/broken/SALT/LENGTH` and `/late/SALT/LENGTH` have
/// bodies; `/check/SALT` reads one and says how long it was, `/early/LENGTH` reads so much of it and answers, `/echo` sends
/// it back.
pub(crate) async fn answer(request: Request<Incoming>) -> Result<Reply, Infallible> {
    let path = request.uri().path().to_owned();
    let mut words = path.split('/').skip(1);
    let what = words.next().unwrap_or_default();
    let mut number = || {
        words
            .next()
            .and_then(|word| word.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let (first, second) = (number(), number());
    let body = |manner| Ok(Response::new(Pieces::new(first, second, manner).boxed_unsync()));
    match what {
        "bytes" => body(Manner::default()),
        "unsized" => body(Manner {
            unsized_: true,
            ..Manner::default()
        }),
        "slow" => body(Manner {
            pause: Some(Duration::from_millis(5)),
            ..Manner::default()
        }),
        "broken" => body(Manner {
            fails: true,
            ..Manner::default()
        }),
        "late" => {
            sleep(Duration::from_millis(20)).await;
            body(Manner::default())
        }
        "check" => Ok(said(match checked(request.into_body(), first).await {
            Ok(bytes) => bytes.to_string(),
            Err(why) => why,
        })),
        "early" => {
            let mut incoming = request.into_body();
            let mut read = 0;
            while read < first {
                match incoming.frame().await {
                    Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len) as u64,
                    Some(Err(_)) | None => break,
                }
            }
            Ok(said("enough".to_owned()))
        }
        "echo" => Ok(Response::new(
            request.into_body().map_err(BoxError::from).boxed_unsync(),
        )),
        _ => {
            let mut reply = said("nothing of that name".to_owned());
            *reply.status_mut() = StatusCode::NOT_FOUND;
            Ok(reply)
        }
    }
}

fn said(text: String) -> Reply {
    Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync())
}

/// How many bytes came, all of which were right.
pub(crate) async fn checked(mut body: Incoming, salt: u64) -> Result<u64, String> {
    let mut check = Check::new(salt);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        check.update(frame.data_ref().map_or(&[][..], |data| data))?;
    }
    Ok(check.count())
}
