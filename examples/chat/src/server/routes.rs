//! From HTTP to questions, and back.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lapidary_lm::Sampling;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};

use super::question::Question;
use super::worker::{Asked, Piece};

const MOST_BODY_BYTES: usize = 4 << 20;
/// Tokens of an answer, unless the client says how many.
const TOKENS: usize = 512;

struct App {
    worker: Sender<Asked>,
    model: String,
    answers: AtomicU64,
}

pub(super) fn router(worker: Sender<Asked>, model: &str) -> Router {
    let app = App {
        worker,
        model: model.to_owned(),
        answers: AtomicU64::new(0),
    };
    Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/v1/models", get(models))
        .route("/health", get(|| async { "ok\n" }))
        .layer(DefaultBodyLimit::max(MOST_BODY_BYTES))
        .with_state(Arc::new(app))
}

async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    let model = json!({ "id": app.model, "object": "model", "created": 0, "owned_by": "lapidary" });
    Json(json!({ "object": "list", "data": [model] }))
}

async fn complete(
    State(app): State<Arc<App>>,
    question: Result<Json<Question>, JsonRejection>,
) -> Response {
    let mut question = match question {
        Ok(Json(question)) => question,
        Err(error) => return refused(error.status(), &error.body_text()),
    };
    let stops = match question.checked() {
        Ok(stops) => stops,
        Err(reason) => return refused(StatusCode::BAD_REQUEST, &reason),
    };
    let with_usage = question.stream_options.include_usage;
    let (answer, pieces) = unbounded_channel();
    let asked = Asked {
        sampling: Sampling {
            temperature: question.temperature.unwrap_or(1.0),
            top_p: question.top_p.unwrap_or(1.0),
            top_k: Some(256),
            seed: question.seed.unwrap_or_else(|| now().1),
            ..Sampling::default()
        },
        most_tokens: question.most_tokens().unwrap_or(TOKENS),
        stops,
        answer,
        messages: question.messages.into_iter().map(Into::into).collect(),
    };
    if app.worker.send(asked).is_err() {
        return refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "the model's thread has ended",
        );
    }
    let number = app.answers.fetch_add(1, Ordering::Relaxed);
    let head =
        json!({ "id": format!("chatcmpl-{number}"), "created": now().0, "model": app.model });
    let mut pieces = UnboundedReceiverStream::new(pieces);
    // A refusal comes before the answer's head.
    let first = match pieces.next().await {
        Some(Piece::Refused(reason)) => return refused(StatusCode::BAD_REQUEST, &reason),
        Some(Piece::Failed(reason)) => return refused(StatusCode::INTERNAL_SERVER_ERROR, &reason),
        None => return refused(StatusCode::INTERNAL_SERVER_ERROR, "the answer broke off"),
        Some(first) => first,
    };
    let pieces = tokio_stream::once(first).chain(pieces);
    match question.stream {
        true => Sse::new(streamed(head, with_usage, pieces)).into_response(),
        false => whole(head, pieces).await,
    }
}

/// The answer as events, piece by piece. `with_usage`: the last one counts the tokens.
fn streamed(
    head: Value,
    with_usage: bool,
    pieces: impl Stream<Item = Piece>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let of_choices = move |choices: Value| {
        let mut chunk = head.clone();
        chunk["object"] = "chat.completion.chunk".into();
        chunk["choices"] = choices;
        chunk
    };
    let event = |data: Value| Event::default().data(data.to_string());
    let chunk = {
        let of_choices = of_choices.clone();
        move |delta: Value, reason: Value| {
            of_choices(json!([{ "index": 0, "delta": delta, "finish_reason": reason }]))
        }
    };
    let begun = event(chunk(
        json!({ "role": "assistant", "content": "" }),
        Value::Null,
    ));
    let events = pieces.filter_map(move |piece| match piece {
        Piece::Text(text) => Some(event(chunk(json!({ "content": text }), Value::Null))),
        Piece::End(reason) => Some(event(chunk(json!({}), reason.into()))),
        Piece::Counts { read, said } => with_usage.then(|| {
            let mut counts = of_choices(json!([]));
            counts["usage"] = usage(read, said);
            event(counts)
        }),
        Piece::Refused(error) | Piece::Failed(error) => {
            Some(event(json!({ "error": { "message": error } })))
        }
    });
    let done = tokio_stream::once(Event::default().data("[DONE]"));
    tokio_stream::once(begun).chain(events).chain(done).map(Ok)
}

/// The answer as one object.
async fn whole(head: Value, pieces: impl Stream<Item = Piece>) -> Response {
    let mut pieces = std::pin::pin!(pieces);
    let (mut text, mut reason) = (String::new(), "");
    while let Some(piece) = pieces.next().await {
        match piece {
            Piece::Text(piece) => text.push_str(&piece),
            Piece::End(because) => reason = because,
            Piece::Counts { read, said } => {
                let mut answer = head;
                let message = json!({ "role": "assistant", "content": text });
                answer["object"] = "chat.completion".into();
                answer["choices"] =
                    json!([{ "index": 0, "message": message, "finish_reason": reason }]);
                answer["usage"] = usage(read, said);
                return Json(answer).into_response();
            }
            Piece::Refused(error) | Piece::Failed(error) => {
                return refused(StatusCode::INTERNAL_SERVER_ERROR, &error);
            }
        }
    }
    refused(StatusCode::INTERNAL_SERVER_ERROR, "the answer broke off")
}

fn usage(read: usize, said: usize) -> Value {
    json!({ "prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said })
}

fn refused(status: StatusCode, message: &str) -> Response {
    let kind = match status.is_client_error() {
        true => "invalid_request_error",
        false => "server_error",
    };
    let error = json!({ "error": { "message": message, "type": kind } });
    (status, Json(error)).into_response()
}

/// The time in seconds, and its nanoseconds as a seed.
fn now() -> (u64, u64) {
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    (time.as_secs(), time.as_nanos() as u64)
}
