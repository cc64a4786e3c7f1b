//! From HTTP to requests and back.
//!
//! ```text
//! POST /embed          {"texts": ["…"]} with `Authorization: Bearer KEY`
//!                      {"width": 384, "vectors": [[…]], "cut": [numbers of texts that were too long]}
//! GET  /health/live    200, or 503 if only a new process can help
//! GET  /health/ready   200 if requests are accepted, otherwise 503
//! GET  /metrics        for Prometheus
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use embed::{Model, Tokens};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::desk::{Desk, Places};
use crate::error::Refusal;
use crate::numbers;
use crate::server::Limits;

/// The pause before a request is refused that should not have come: with an unknown key, or while
/// the tenant has its queue full. A client that asks again at once would take the cores otherwise.
const PAUSE: Duration = Duration::from_millis(100);

/// What the routes share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) desk: Arc<Desk>,
    pub(crate) model: Arc<Model>,
    pub(crate) limits: Limits,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    texts: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Given<'a> {
    width: usize,
    vectors: Vec<&'a [f32]>,
    cut: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Refused {
    error: String,
}

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/embed", post(embed))
        .route("/health/live", get(live))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .layer(DefaultBodyLimit::max(app.limits.body_bytes))
        .with_state(app)
}

async fn embed(State(app): State<Arc<App>>, request: Request) -> Response {
    let start = Instant::now();
    let tenant = app.tenant(request.headers());
    let answered = match tenant.clone() {
        Ok(tenant) => app.embed(tenant, request).await,
        Err(refusal) => Err(refusal),
    };
    let response = match answered {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(refusal) => {
            if matches!(refusal.status(), 401 | 429) {
                sleep(PAUSE).await;
            }
            refused(&refusal)
        }
    };
    let name = tenant.map_or("-", |tenant| app.desk.tenants.name(tenant));
    numbers::request(name, response.status().as_u16(), start.elapsed());
    response
}

async fn live(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match app.desk.is_alive() {
        true => (StatusCode::OK, "live\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the worker panicked\n"),
    }
}

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match app.desk.is_ready() {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let Some(exporter) = numbers::exporter() else {
        let why = "the program has a recorder of its own\n";
        return (StatusCode::NOT_FOUND, why).into_response();
    };
    let render = move || {
        app.desk.record();
        app.model.gpu().memory().record_metrics();
        exporter.render()
    };
    match spawn_blocking(render).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(_) => refused(&Refusal::Failed),
    }
}

impl App {
    /// The tenant whose key the request has.
    fn tenant(&self, headers: &HeaderMap) -> Result<usize, Refusal> {
        let value = headers.get(header::AUTHORIZATION).ok_or(Refusal::NoKey)?;
        let key = value
            .to_str()
            .ok()
            .and_then(|value| value.strip_prefix("Bearer "));
        let key = key.ok_or(Refusal::NoKey)?;
        self.desk.tenants.find(key).ok_or(Refusal::UnknownKey)
    }

    /// The body of the answer.
    async fn embed(self: &Arc<Self>, tenant: usize, request: Request) -> Result<Vec<u8>, Refusal> {
        self.desk.look(tenant)?;
        let body = self.body(request).await?;
        let (places, texts) = self.tokens(tenant, body).await?;
        let cut = texts
            .iter()
            .enumerate()
            .filter(|(_, text)| text.cut_from.is_some());
        let cut = cut.map(|(index, _)| index).collect();
        let vectors = self.desk.submit(places, texts)?.answered().await?;
        let width = self.model.config.hidden_size;
        let given = Given {
            width,
            vectors: vectors.chunks(width).collect(),
            cut,
        };
        serde_json::to_vec(&given).map_err(|_| Refusal::Failed)
    }

    async fn body(&self, request: Request) -> Result<Bytes, Refusal> {
        let too_large = Refusal::TooLarge {
            limit_bytes: self.limits.body_bytes,
        };
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.limits.body_bytes as u64) {
            return Err(too_large);
        }
        match timeout(self.limits.body, Bytes::from_request(request, &())).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(rejected)) if rejected.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(too_large)
            }
            Ok(Err(_)) => Err(Refusal::Invalid("the body broke off".into())),
            Err(_) => Err(Refusal::TooSlow {
                seconds: self.limits.body.as_secs(),
            }),
        }
    }

    /// Divides the texts of a body into tokens, beside the thread of the connections. They have
    /// places in the queue before.
    async fn tokens(
        self: &Arc<Self>,
        tenant: usize,
        body: Bytes,
    ) -> Result<(Places, Vec<Tokens>), Refusal> {
        let app = self.clone();
        let divide = move || {
            let asked: Asked = serde_json::from_slice(&body).map_err(|error| {
                let form = r#"the body is no {"texts": ["…"]}"#;
                Refusal::Invalid(format!("{form}: {error}"))
            })?;
            let (count, most) = (asked.texts.len(), app.limits.request_texts);
            if count == 0 || count > most {
                return Err(Refusal::Invalid(format!(
                    "{count} texts are given, and 1 to {most} can be"
                )));
            }
            let places = app.desk.reserve(tenant, count)?;
            let texts = asked.texts.iter().map(|text| app.model.words.tokens(text));
            let texts: embed::Result<_> = texts.collect();
            let texts = texts.map_err(|error| Refusal::Invalid(error.to_string()))?;
            Ok((places, texts))
        };
        spawn_blocking(divide).await.unwrap_or(Err(Refusal::Failed))
    }
}

fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let error = refusal.to_string();
    let mut response = (status, axum::Json(Refused { error })).into_response();
    let headers = response.headers_mut();
    if let Some(seconds) = refusal.retry_after_s() {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        headers.insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}
