//! The handler of the soak's servers on the library.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use fullbore::{BoxError, Incoming};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::time::sleep;

use crate::body::{Manner, Pieces, check};

type Reply = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// `/bytes/SALT/LENGTH`, `/unsized/...`, `/slow/...`, `/broken/...` and `/late/...` have bodies. `/check/SALT` reads one and
/// answers with its length, `/early/LENGTH` reads that much of it and answers, `/echo` sends it back.
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
    let body = |manner| Response::new(Pieces::new(first, second, manner).boxed_unsync());
    let manner = Manner::default();
    Ok(match what {
        "bytes" => body(manner),
        "unsized" => body(Manner {
            unsized_: true,
            ..manner
        }),
        "slow" => body(Manner {
            pause: Some(Duration::from_millis(5)),
            ..manner
        }),
        "broken" => body(Manner {
            fails: true,
            ..manner
        }),
        "late" => {
            sleep(Duration::from_millis(20)).await;
            body(manner)
        }
        "check" => match check(&mut request.into_body(), first, u64::MAX, None).await {
            Ok(bytes) => text(bytes.to_string()),
            Err(error) => text(error.to_string()),
        },
        "early" => {
            let mut body = request.into_body();
            // An upload that breaks off has enough, too.
            let _ = check(&mut body, 0, first, None).await;
            text("enough".to_owned())
        }
        "echo" => Response::new(request.into_body().map_err(BoxError::from).boxed_unsync()),
        _ => {
            let mut reply = text("nothing of that name".to_owned());
            *reply.status_mut() = StatusCode::NOT_FOUND;
            reply
        }
    })
}

fn text(text: String) -> Reply {
    Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync())
}
